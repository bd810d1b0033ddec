// Runs a function on cases: {{ function }}. Variables: function, cases (a list of {"args": [...], "expected": ...}).
const __token = process.env.TEMPLATE_TOKEN; delete process.env.TEMPLATE_TOKEN;

{{ code }}

;(async () => {
  const { isDeepStrictEqual } = require('util');
  const cases: { args: any[]; expected: any }[] = {{ cases | literal }};
  let failed = 0;
  for (const [number, { args, expected }] of cases.entries()) {
    const report: any = { case: number, passed: false, expected, actual: null, error: null };
    try {
      report.actual = await ({{ function }} as any)(...args);
      report.passed = isDeepStrictEqual(report.actual, expected);
    } catch (error) {
      report.error = String(error);
    }
    if (!report.passed) failed++;
    console.log(JSON.stringify(report));
  }
  if (failed) console.error(`${failed} of ${cases.length} cases failed`);
  console.log(__token);
  process.exitCode = failed ? 1 : 0;
})();
