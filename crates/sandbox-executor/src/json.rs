//! A request as JSON: what the HTTP interface and stored jobs carry.
//!
//! Reading it checks shapes and names; [`JsonRequest::into_request`] checks values against the operator's settings and
//! yields the same [`Request`] that the command line makes from its flags.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sandbox_base::limits::TABLE;
use sandbox_base::units::shorten;
use sandbox_base::{LimitKind, RelativePath};
use sandbox_cell::Layer;
use sandbox_network::HostRule;
use sandbox_runtimes::Definition;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bounded;
use crate::input_files::InputFile;
use crate::json_input::{self, JsonInput};
use crate::network::{NetworkMode, NetworkRequest};
use crate::request::{Request, Source};
use crate::settings::Settings;
use crate::shared;
use crate::template::TemplateRequest;
use crate::volumes::VolumeRequest;

/// A request. Only `code`, or `files` with a program in them, is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct JsonRequest {
    /// The program, as text.
    #[serde(deserialize_with = "shared::optional_text")]
    pub code: Option<Arc<str>>,
    /// The image to run the program in, by name or digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The language of the program, by name or alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The file in `files` that is the main program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Files for the working directory, by relative path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "bounded::map::<_, _, { bounded::FILES }>")]
    pub files: BTreeMap<String, JsonFile>,
    /// Standard input of the program: text, or an object with base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<JsonInput>,
    /// Arguments of the program.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, { bounded::ARGS }>")]
    pub args: Vec<String>,
    /// Arguments of the interpreter, such as `-O` for Python. Each language allows some; others are refused with the list.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, { bounded::FEW }>")]
    pub interpreter_args: Vec<String>,
    /// Arguments of the compiler, such as `-O3` for C. Each language allows some; others are refused with the list.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, { bounded::FEW }>")]
    pub compiler_args: Vec<String>,
    /// The standard or edition of the language, such as `c++20` for C++ or `2024` for Rust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard: Option<String>,
    /// Environment variables of the program.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "bounded::map::<_, _, { bounded::VARIABLES }>"
    )]
    pub env: BTreeMap<String, String>,
    /// Packages to install, as the package manager of the language writes them, such as `requests==2.32.3`.
    #[serde(
        alias = "packages",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, { bounded::PACKAGES }>"
    )]
    pub requirements: Vec<String>,
    /// Limits of the run, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "bounded::map::<_, _, { bounded::FEW }>")]
    #[cfg_attr(feature = "openapi", schema(required = false, schema_with = limits_schema))]
    pub limits: BTreeMap<String, Quantity>,
    /// Older name of `timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(deprecated))]
    pub timeout_seconds: Option<Quantity>,
    /// The same as `limits.timeout`.
    #[serde(alias = "wall_time", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Quantity>,
    /// Network access of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<JsonNetwork>,
    /// Whether to run the program in the restricted mode of its language, which allows only safe built-ins.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restricted: bool,
    /// The template to insert the code into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<JsonTemplate>,
    /// Volumes, each `NAME:TARGET[:SIZE]` or `HOST:TARGET[:ro|rw]`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, { bounded::FEW }>")]
    pub volumes: Vec<String>,
    /// The working directory of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The webhook to call when the job ends; only for jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<JsonWebhook>,
    /// Start before jobs of the same API key with a lower priority: -100 to 100, 0 by default; only for jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// The labels that the worker must have, at most 8; only for jobs.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, { bounded::FEW }>")]
    pub labels: Vec<String>,
    /// The earliest start, in seconds since 1970; only for jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<f64>,
    /// The delay before the start, such as 10m; only for jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Quantity>,
    /// End the job as expired if it has not started within this time, such as 1h; only for jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Quantity>,
}

/// When and where a job starts, as a request has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JsonSchedule {
    /// Its priority.
    pub priority: Option<i64>,
    /// The labels that its worker must have.
    pub labels: Vec<String>,
    /// When to start at the earliest, in seconds since 1970.
    pub not_before: Option<f64>,
    /// How long to wait before the start.
    pub delay: Option<String>,
    /// After how long it expires.
    pub expires_in: Option<String>,
}

/// A property for each limit of the table.
#[cfg(feature = "openapi")]
fn limits_schema() -> utoipa::openapi::Object {
    use utoipa::openapi::Ref;
    use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder};
    let object = ObjectBuilder::new().description(Some("Limits of the run, by name."));
    let object = object.additional_properties(Some(AdditionalProperties::FreeForm(false)));
    let quantity = |description: String| {
        let mut quantity = Ref::from_schema_name("Quantity");
        quantity.description = description;
        quantity
    };
    let object = TABLE.iter().fold(object, |object, limit| object.property(limit.name, quantity(limit.flag_help())));
    let older = TABLE.iter().filter_map(|limit| Some((limit.alias?, format!("Older name of `{}`.", limit.name))));
    older.fold(object, |object, (alias, help)| object.property(alias, quantity(help))).build()
}

/// The webhook to call when a job ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JsonWebhook {
    /// The HTTP or HTTPS URL that receives the notification.
    pub url: String,
    /// The secret for signatures: at least 16 characters, or `whsec_` and base64.
    pub secret: String,
}

/// The content of a file: text, or an object as in results. The files of a result can be sent in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum JsonFile {
    /// Text.
    Text(Arc<str>),
    /// An object as in results.
    Full(FullFile),
    /// A symbolic link.
    Link(FileLink),
}

/// A symbolic link, made in the sandbox only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FileLink {
    /// Its target: a path relative to the link, inside of the working directory.
    pub symlink: String,
}

/// A file, in the same form as in results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FullFile {
    /// Its content.
    #[serde(deserialize_with = "shared::text")]
    pub content: Arc<str>,
    /// `utf-8` or `base64`.
    #[serde(default)]
    pub encoding: Option<String>,
    /// The size in bytes. It is accepted so that files of results can be sent back, and ignored.
    #[serde(default)]
    pub size: Option<u64>,
    /// Whether it may be executed.
    #[serde(default)]
    pub executable: bool,
}

/// The fields of a file and of a link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnyFile {
    #[serde(default, deserialize_with = "shared::optional_text")]
    content: Option<Arc<str>>,
    #[serde(default)]
    encoding: Option<String>,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    executable: bool,
    #[serde(default)]
    symlink: Option<String>,
}

impl AnyFile {
    fn file(self) -> Result<JsonFile, &'static str> {
        match self {
            Self { content: Some(content), encoding, size, executable, symlink: None } => {
                Ok(JsonFile::Full(FullFile { content, encoding, size, executable }))
            }
            Self { content: None, encoding: None, size: None, executable: false, symlink: Some(symlink) } => {
                Ok(JsonFile::Link(FileLink { symlink }))
            }
            Self { content: None, symlink: None, .. } => Err("missing field `content`"),
            _ => Err("a link has no other field than `symlink`"),
        }
    }
}

impl<'de> Deserialize<'de> for JsonFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Serde's way to read one of several types keeps a copy of the content until it knows which.
        struct TextOrFile;

        impl<'de> Visitor<'de> for TextOrFile {
            type Value = JsonFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the content of a file, as a string or an object")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<JsonFile, E> {
                Ok(JsonFile::Text(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonFile, A::Error> {
                AnyFile::deserialize(MapAccessDeserializer::new(map))?.file().map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(TextOrFile)
    }
}

/// A number of seconds, bytes or units; or text with a duration or size, such as `"500ms"` or `"64m"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Quantity {
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
}

impl Quantity {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The network access of a program: a mode, or a mode with options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum JsonNetwork {
    /// The mode.
    Mode(String),
    /// The mode with options.
    Full(FullNetwork),
}

/// The network access of a program, with options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FullNetwork {
    /// `none`, `localhost`, `allowlist` or `full`.
    pub mode: String,
    /// The hosts that mode `allowlist` allows, each `host`, `host:port`, `*.name` or `*.name:port`.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, { bounded::HOSTS }>"
    )]
    pub hosts: Vec<String>,
    /// Whether DNS lookups are allowed. Default: only in the modes `allowlist` and `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<bool>,
}

/// A template: its name, or its text with variables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JsonTemplate {
    /// The name of a built-in template.
    #[serde(default)]
    pub name: Option<String>,
    /// The text of a custom template.
    #[serde(default, deserialize_with = "shared::optional_text")]
    pub text: Option<Arc<str>>,
    /// Its variables.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Value>))]
    pub variables: Arc<BTreeMap<String, Value>>,
}

/// Why a request was refused: the field, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct FieldError {
    /// The field.
    pub field: String,
    /// What is wrong.
    pub why: String,
}

fn at(field: impl Into<String>) -> impl FnOnce(String) -> FieldError {
    let field = field.into();
    move |why| FieldError { field, why }
}

impl JsonRequest {
    /// The name of the language [default: python].
    #[must_use]
    pub fn language(&self) -> &str {
        self.language.as_deref().unwrap_or("python")
    }

    /// Takes out when and where a job starts.
    pub fn take_schedule(&mut self) -> JsonSchedule {
        let text = |quantity: Option<Quantity>| quantity.map(|quantity| quantity.text());
        JsonSchedule {
            priority: self.priority.take(),
            labels: std::mem::take(&mut self.labels),
            not_before: self.not_before.take(),
            delay: text(self.delay.take()),
            expires_in: text(self.expires_in.take()),
        }
    }

    /// The field, if there is one, that only jobs can have.
    fn only_for_jobs(&self) -> Option<&'static str> {
        let fields = [
            ("webhook", self.webhook.is_some()),
            ("priority", self.priority.is_some()),
            ("labels", !self.labels.is_empty()),
            ("not_before", self.not_before.is_some()),
            ("delay", self.delay.is_some()),
            ("expires_in", self.expires_in.is_some()),
        ];
        fields.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    /// About how many bytes a copy of the request takes together with what a run makes of it, besides the texts that all
    /// copies share.
    #[must_use]
    pub fn own_size(&self) -> usize {
        let words =
            self.requirements.iter().chain(&self.volumes).chain(&self.interpreter_args).chain(&self.compiler_args);
        let words = words.map(|word| word.len() + ENTRY).sum::<usize>();
        let stdin = self.stdin.as_ref().map_or(0, JsonInput::own_size);
        ENTRY + words + stdin + own_size(&self.args, &self.env, &self.files)
    }

    /// The request that this is, in a language. What it holds is moved or shared, not copied.
    pub fn into_request(mut self, language: &Definition, settings: &Settings) -> Result<Request, FieldError> {
        if let Some(field) = self.only_for_jobs() {
            let a = if field == "webhook" { "a webhook" } else { field };
            return Err(at(field)(format!("only jobs (POST /v1/execute) can have {a}")));
        }
        let source = match self.code.take() {
            Some(code) => Source::Code(code),
            None if self.files.is_empty() => return Err(at("code")("is missing".to_owned())),
            None => Source::Files,
        };
        let mut limits = settings.defaults.clone();
        let mut required = settings.required();
        let timeouts = [("timeout_seconds", &self.timeout_seconds), ("timeout", &self.timeout)];
        let timeouts =
            timeouts.into_iter().filter_map(|(field, value)| Some((field, LimitKind::WallTime, value.as_ref()?)));
        let mut given: Vec<(String, LimitKind, &Quantity)> =
            timeouts.map(|(field, kind, value)| (field.to_owned(), kind, value)).collect();
        for (name, value) in &self.limits {
            let kind = LimitKind::by_name(name).ok_or_else(|| {
                let known: Vec<_> = TABLE.iter().map(|info| info.name).collect();
                at(format!("limits.{}", shorten(name)))(format!("unknown limit: expected one of {}", known.join(", ")))
            })?;
            let twice = given.iter().find(|(field, known, _)| *known == kind && field.starts_with("limits."));
            if let Some((other, ..)) = twice {
                return Err(at(format!("limits.{name}"))(format!("is another name of {other}; give one of them")));
            }
            given.push((format!("limits.{name}"), kind, value));
        }
        for (field, kind, value) in given {
            let set = kind.parse(&value.text()).and_then(|value| limits.set(kind, value, &settings.caps));
            set.map_err(|error| at(field)(error.to_string()))?;
            if kind == LimitKind::Cpus {
                required.insert(Layer::Cpu);
            }
        }
        let mut request = Request::new(source, limits, required);
        let entry = self.entry.take().map(|entry| RelativePath::normalized(&entry)).transpose();
        request.entry = entry.map_err(|error| at("entry")(error.to_string()))?;
        let files = std::mem::take(&mut self.files);
        request.files = files.into_iter().map(|(path, file)| input_file(&path, file)).collect::<Result<_, _>>()?;
        request.args = std::mem::take(&mut self.args).into_iter().map(Into::into).collect();
        let env = std::mem::take(&mut self.env);
        request.env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        request.interpreter_args = std::mem::take(&mut self.interpreter_args);
        request.compiler_args = std::mem::take(&mut self.compiler_args);
        request.standard = self.standard.take();
        request.packages = std::mem::take(&mut self.requirements);
        request.network = self.network()?;
        request.restricted = self.restricted;
        request.template = self.template(language)?;
        request.workdir = self.workdir.as_ref().map(Into::into);
        request.volumes = self
            .volumes
            .iter()
            .map(|text| VolumeRequest::parse(text).map_err(at("volumes")))
            .collect::<Result<_, _>>()?;
        if !settings.named_volumes && request.volumes.iter().any(|volume| matches!(volume, VolumeRequest::Named { .. }))
        {
            let why =
                "named volumes are shared by all clients; the operator allows them with SANDBOX_NAMED_VOLUMES=yes";
            return Err(at("volumes")(why.to_owned()));
        }
        request.collect = true;
        Ok(request)
    }

    fn network(&self) -> Result<NetworkRequest, FieldError> {
        let mode = |mode: &str| NetworkMode::parse(mode).map_err(at("network"));
        match &self.network {
            None => Ok(NetworkRequest::default()),
            Some(JsonNetwork::Mode(name)) => Ok(NetworkRequest { mode: mode(name)?, ..NetworkRequest::default() }),
            Some(JsonNetwork::Full(full)) => {
                let hosts = full.hosts.iter().map(|host| HostRule::parse(host)).collect::<Result<_, _>>();
                Ok(NetworkRequest {
                    mode: mode(&full.mode)?,
                    hosts: hosts.map_err(at("network.hosts"))?,
                    dns: full.dns,
                })
            }
        }
    }

    fn template(&mut self, language: &Definition) -> Result<Option<TemplateRequest>, FieldError> {
        let Some(template) = self.template.take() else { return Ok(None) };
        let (name, text) = match (&template.name, template.text) {
            (Some(name), None) => {
                let text = language.templates.get(name);
                let name = shorten(name);
                let missing = || at("template.name")(format!("no template '{name}' for {}", language.name));
                (format!("template '{name}'"), text.ok_or_else(missing)?.as_str().into())
            }
            (None, Some(text)) => ("template".to_owned(), text),
            _ => return Err(at("template")("expected either a name or a text".to_owned())),
        };
        Ok(Some(TemplateRequest { name, text, variables: template.variables }))
    }
}

/// About what an entry of a list or map takes in a request and in the run that is made of it, besides its text.
const ENTRY: usize = 512;

/// The part of [`JsonRequest::own_size`] that is due to these arguments, variables and files.
#[must_use]
pub fn own_size(args: &[String], env: &BTreeMap<String, String>, files: &BTreeMap<String, JsonFile>) -> usize {
    let words = args.iter().map(String::len).chain(env.iter().map(|(name, value)| name.len() + value.len()));
    let files = files.iter().map(|(path, file)| {
        let decoded = match file {
            JsonFile::Full(file) => json_input::decoded_size(&file.content, file.encoding.as_deref()),
            JsonFile::Text(_) => 0,
            JsonFile::Link(link) => link.symlink.len(),
        };
        path.len() + decoded
    });
    words.chain(files).map(|bytes| bytes + ENTRY).sum()
}

fn input_file(path: &str, file: JsonFile) -> Result<InputFile, FieldError> {
    let field = || at(format!("files.{}", shorten(path)));
    let relative = RelativePath::normalized(path).map_err(|error| field()(error.to_string()))?;
    let (content, executable) = match file {
        JsonFile::Text(text) => (text.into(), false),
        JsonFile::Full(full) => {
            let bytes = json_input::decode(full.content, full.encoding.as_deref()).map_err(field())?;
            (bytes, full.executable)
        }
        JsonFile::Link(link) => {
            return InputFile::link(relative, link.symlink).map_err(|error| field()(error.to_string()));
        }
    };
    Ok(InputFile { path: relative, content, executable, is_link: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Request, String> {
        let request: JsonRequest = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let settings = Settings { named_volumes: true, ..Settings::default() };
        request.into_request(&python(), &settings).map_err(|error| error.to_string())
    }

    fn python() -> Definition {
        sandbox_runtimes::Registry::shipped().expect("valid").by_name("python").expect("known").clone()
    }

    #[test]
    fn limits_have_one_name_and_some_an_older_one() {
        let limits = |limits: serde_json::Value| {
            let request: JsonRequest = serde_json::from_value(json!({"code": "1", "limits": limits})).expect("valid");
            let made = request.into_request(&python(), &Settings::default());
            made.map(|request| request.limits).map_err(|error| error.to_string())
        };
        let names = json!({"timeout": "2s", "processes": 3, "output_limit": "4k"});
        let older = json!({"wall_time": "2s", "pids": 3, "output": "4k"});
        assert_eq!(limits(names.clone()), limits(older));
        assert_eq!(limits(names).map(|limits| limits.processes()), Ok(3));
        let error = limits(json!({"pids": 0})).expect_err("refused");
        assert!(error.starts_with("limits.pids: process limit 0"), "as it was given: {error}");
        let error = limits(json!({"pids": 1, "processes": 2})).expect_err("refused");
        assert_eq!(error, "limits.processes: is another name of limits.pids; give one of them");
        let request = json!({"code": "1", "wall_time": "2s", "packages": ["six"]});
        let request: JsonRequest = serde_json::from_value(request).expect("valid");
        assert_eq!((request.timeout.is_some(), request.requirements.len()), (true, 1));
    }

    #[test]
    fn named_volumes_are_refused_unless_allowed() {
        let request = JsonRequest { code: Some("1".into()), volumes: vec!["v:/data".into()], ..JsonRequest::default() };
        let refused = request.into_request(&python(), &Settings::default()).expect_err("refused").to_string();
        assert!(refused.starts_with("volumes: named volumes are shared by all clients"), "{refused}");
    }

    #[test]
    fn only_code_is_required() {
        let request = read(json!({"code": "print(1)"})).expect("valid");
        assert_eq!(request.source, Source::Code("print(1)".into()));
        assert!(request.collect);
        assert_eq!(read(json!({})).expect_err("refused"), "code: is missing");
        let files = read(json!({"files": {"main.py": "1"}, "entry": "main.py"})).expect("valid");
        assert_eq!(files.source, Source::Files);
    }

    #[test]
    fn stored_requests_are_read_back_unchanged() {
        let text = r#"{"code":"1","template":{"text":"","variables":{"x":4.5e300,"y":[0.1,2.2250738585072011e-308]}}}"#;
        let request: JsonRequest = serde_json::from_str(text).expect("valid");
        assert_eq!(request.template.as_ref().expect("some").variables["x"], json!(4.5e300));
        let stored = serde_json::to_vec(&request).expect("json");
        assert_eq!(serde_json::from_slice::<JsonRequest>(&stored).expect("valid"), request);
    }

    #[test]
    fn messages_are_one_line_and_do_not_repeat_everything() {
        let odd = format!("\u{1b}[31m\n{}", "x".repeat(1000));
        for value in [
            json!({"code": "1", "limits": {&odd: 1}}),
            json!({"code": "1", "limits": {"processes": odd}}),
            json!({"code": "1", "network": odd}),
            json!({"code": "1", "files": {&odd: "x"}}),
            json!({"code": "1", "files": {"a": {"content": "", "encoding": odd}}}),
            json!({"code": "1", "template": {"name": odd}}),
            json!({"code": "1", "volumes": [odd]}),
        ] {
            let error = read(value).expect_err("refused");
            assert!(!error.contains(char::is_control) && error.len() < 400, "{error:?}");
        }
    }

    #[test]
    fn copies_of_a_request_and_what_is_made_of_them_share_its_texts() {
        let text = "x".repeat(1000);
        let files = json!({"a": text, "b": {"content": text}, "c": {"content": "eHg=", "encoding": "base64"}});
        let template = json!({"text": text, "variables": {"x": text}});
        let json = json!({"code": text, "stdin": text, "files": files, "template": template});
        let request: JsonRequest = serde_json::from_value(json).expect("valid");
        assert!((2_000..3_000).contains(&request.own_size()), "{} bytes", request.own_size());
        let made = request.clone().into_request(&python(), &Settings::default()).expect("valid");
        let Source::Code(code) = made.source else { panic!("code") };
        assert!(Arc::ptr_eq(&code, request.code.as_ref().expect("code")));
        let Some(JsonFile::Text(text)) = request.files.get("a") else { panic!("a text") };
        assert_eq!(made.files[0].content.as_ptr(), text.as_ptr());
        let (made, given) = (made.template.expect("a template"), request.template.expect("a template"));
        assert!(Arc::ptr_eq(&made.variables, &given.variables) && Some(made.text) == given.text);
    }

    #[test]
    fn both_dialects_are_understood() {
        for field in ["timeout", "timeout_seconds"] {
            let request = read(json!({"code": "1", field: 1.5})).expect("valid");
            assert_eq!(request.limits.wall_time().as_millis(), 1500);
        }
        let request = read(json!({
            "code": "1", "timeout": "1m30s", "requirements": ["six"], "args": ["a"], "env": {"K": "V"},
            "limits": {"memory": "64m", "processes": 3, "cpus": 0.5}, "network": {"mode": "localhost"},
            "files": {"a.txt": "text", "b.bin": {"content": "/w==", "encoding": "base64", "size": 1, "executable": true}},
            "template": {"name": "harness", "variables": {"function": "f"}}, "volumes": ["v:/data"], "workdir": "x"
        }))
        .expect("valid");
        assert_eq!((request.limits.wall_time().as_secs(), request.limits.memory()), (90, 64 << 20));
        assert_eq!(request.network.mode, NetworkMode::Localhost);
        assert_eq!((&*request.files[1].content, request.files[1].executable), (&[255][..], true));
        assert!(request.template.is_some() && request.packages == ["six"]);
    }

    #[test]
    fn mistakes_name_the_field() {
        let refused = |value: Value| read(value).expect_err("refused");
        assert!(refused(json!({"code": 1})).contains("invalid type"));
        assert!(refused(json!({"code": "1", "files": {"a": 1}})).contains("expected the content of a file"));
        assert!(refused(json!({"code": null})).starts_with("code: is missing"));
        assert!(refused(json!({"code": "1", "tiemout": 1})).contains("unknown field `tiemout`"));
        assert!(
            refused(json!({"code": "1", "timeout": "soon"}))
                .starts_with("timeout: invalid time limit \"soon\": expected")
        );
        assert!(refused(json!({"code": "1", "timeout": -1})).starts_with("timeout: "));
        assert!(refused(json!({"code": "1", "limits": {"moeny": 1}})).starts_with("limits.moeny: unknown limit"));
        assert!(refused(json!({"code": "1", "limits": {"memory": "1p"}})).starts_with("limits.memory: "));
        assert!(refused(json!({"code": "1", "files": {"../x": ""}})).contains("climbs"));
        assert!(
            refused(json!({"code": "1", "stdin": 1})).contains("expected standard input, as a string or an object")
        );
        let link = |file: Value| refused(json!({"code": "1", "files": {"x": file}}));
        assert!(
            link(json!({"symlink": "/etc/passwd"})).starts_with("files.x: invalid target '/etc/passwd' of link 'x'")
        );
        assert!(link(json!({"symlink": "a", "content": "b"})).contains("a link has no other field"));
        assert!(link(json!({"encoding": "base64"})).contains("missing field `content`"));
        let bad = json!({"code": "1", "files": {"x": {"content": "???", "encoding": "base64"}}});
        assert!(refused(bad).starts_with("files.x: invalid base64"));
        assert!(refused(json!({"code": "1", "network": "all"})).starts_with("network: unknown network mode 'all'"));
        let bad = json!({"code": "1", "network": {"mode": "allowlist", "hosts": ["http://x"]}});
        assert!(refused(bad).starts_with("network.hosts: 'http://x' is not a host"));
        assert!(refused(json!({"code": "1", "template": {}})).starts_with("template: expected either"));
        assert!(refused(json!({"code": "1", "volumes": ["x"]})).starts_with("volumes: "));
    }
}
