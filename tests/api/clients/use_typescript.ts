// Uses types that openapi-typescript has generated, with openapi-fetch, as a program of a user would.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[]; exit(code: number): never };

const [url, key] = process.argv.slice(2);

function check(what: string, condition: boolean, seen: unknown): asserts condition {
    if (!condition) {
        console.error(`typescript client: ${what}:`, seen);
        process.exit(1);
    }
}

// Batches and events are JSON for clients that accept it; otherwise they are streams.
const headers = { Accept: "application/json", Authorization: `Bearer ${key}` };
const client = createClient<paths>({ baseUrl: url, headers });

const run = await client.POST("/execute", { body: { code: "print(2+2)" } });
check("run", run.data?.verdict === "ok" && run.data.stdout === "4\n", run);

const refused = await client.POST("/execute", { body: { code: "1", limits: { memory: "lots" } } });
check("error", refused.error?.code === "invalid_request" && refused.error.field === "limits.memory", refused);

const open = createClient<paths>({ baseUrl: url, headers: { Accept: "application/json" } });
const unknown = await open.GET("/v1/languages");
check("no key", unknown.error?.code === "unauthorized", unknown);

const created = await client.POST("/v1/execute", { body: { language: "bash", code: "echo job" } });
check("create", created.data !== undefined, created);
const path = { id: created.data.id };
const job = await client.GET("/v1/execute/{id}", { params: { path, query: { wait: "20s" } } });
check("job", job.data?.status === "finished" && job.data.result?.stdout === "job\n", job);
const page = await client.GET("/v1/execute/{id}/events", { params: { path } });
check("events", page.data?.ended === true, page);
let output = "";
for (const { data } of page.data.events) {
    if (data.event === "stdout") {
        output += data.data ?? "";
    }
}
check("output in events", output === "job\n", page.data.events);

const batch = await client.POST("/v1/batch", {
    body: { request: { code: "print(int(input()) ** 2)" }, inputs: [{ stdin: "3" }, { stdin: "4" }] },
});
check("batch", batch.data?.map((item) => item.result?.stdout).join("") === "9\n16\n", batch);

const languages = await client.GET("/v1/languages");
check("languages", languages.data?.find((language) => language.name === "python")?.available === true, languages);
const health = await client.GET("/health");
check("health", health.data?.status === "ok" && typeof health.data.version === "string", health);
console.log("typescript client: ok");
