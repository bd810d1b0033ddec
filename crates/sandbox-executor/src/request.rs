//! A request, checked completely before anything is created.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use sandbox_base::{Limits, PathError, RelativePath};
use sandbox_cell::{LayerSet, Mount, WindowSize};
use sandbox_images::Image;
use sandbox_runtimes::{ArgumentError, Definition, Missing, RunMode};

use crate::face::Face;
use crate::input_files::{self, InputFile};
use crate::network::NetworkRequest;
use crate::template::{Rendered, TemplateRequest};
use crate::volumes::{VolumeRequest, check_workdir};

/// The longest source text.
pub(crate) const MAX_SOURCE: usize = 4 << 20;

/// The most that arguments and environment may have together.
const MAX_WORDS: usize = 128 << 10;

/// The most packages in a request.
pub(crate) const MOST_PACKAGES: usize = 200;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A program in a language, as text. It becomes a file of the request's entry name, or of the language's usual one.
    Code(Arc<str>),
    /// A program in a language that is among the request's files.
    Files,
    /// A program of the system, with its arguments.
    Program {
        /// The program and its arguments.
        argv: Vec<OsString>,
        /// A host file to mount in the cell, read-only.
        mount: Option<Mount>,
    },
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The face that it came through: hints name what the users of that face can change.
    pub face: Face,
    /// The owner: the name of an API key; none where there is a single owner.
    pub owner: Option<String>,
    /// What to run.
    pub source: Source,
    /// The container image to run it in, if not on the host.
    pub image: Option<Image>,
    /// A template around the code.
    pub template: Option<TemplateRequest>,
    /// What came of the template.
    rendered: Option<Rendered>,
    /// The file where the program begins.
    pub entry: Option<RelativePath>,
    /// The module to run by its name, in place of a file.
    pub module: Option<String>,
    /// Files for the working directory.
    pub files: Vec<InputFile>,
    /// Packages, each in its ecosystem's spelling.
    pub packages: Vec<String>,
    /// Whether only safe built-ins are allowed.
    pub restricted: bool,
    /// Arguments of the program.
    pub args: Vec<OsString>,
    /// Arguments of the interpreter, of those that the language allows.
    pub interpreter_args: Vec<String>,
    /// Arguments of the compiler, of those that the language allows.
    pub compiler_args: Vec<String>,
    /// The standard or edition of the language, if not the usual one.
    pub standard: Option<String>,
    /// Variables for the program.
    pub env: Vec<(OsString, OsString)>,
    /// Where the program starts, if not in the usual directory: a path in that, or an absolute one.
    pub workdir: Option<PathBuf>,
    /// Named volumes and host directories.
    pub volumes: Vec<VolumeRequest>,
    /// Whether files that the program made are wanted.
    pub collect: bool,
    /// Whether the report of the language's runner is wanted: the value of the last expression.
    pub report: bool,
    /// What it may use.
    pub limits: Limits,
    /// What it can reach.
    pub network: NetworkRequest,
    /// Layers that must be there.
    pub required: LayerSet,
    /// The size of its terminal, if its input is one.
    pub(crate) terminal: Option<WindowSize>,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no code.
    #[error("the code is empty")]
    EmptyCode,
    /// The code is too long.
    #[error("the code has {size} bytes, the maximum is {MAX_SOURCE}; pass data as files")]
    LongCode {
        /// Its size.
        size: usize,
    },
    /// Its network request is invalid, or exceeds what the operator allows.
    #[error("network: {0}")]
    Network(String),
    /// A NUL byte where none can be.
    #[error("{what} contains a NUL byte")]
    Nul {
        /// Where.
        what: &'static str,
    },
    /// A name that no variable can have.
    #[error("invalid environment variable name '{name}'")]
    VariableName {
        /// The name.
        name: String,
    },
    /// Too many or too long arguments and variables.
    #[error("arguments and environment have {size} bytes in total, the maximum is {MAX_WORDS}")]
    LongWords {
        /// Their size.
        size: usize,
    },
    /// Two files of one name.
    #[error("duplicate file '{path}'")]
    DuplicateFile {
        /// The name.
        path: String,
    },
    /// A file that would have to be a directory too.
    #[error("'{path}' is both a file and a directory")]
    FileAndDirectory {
        /// The name.
        path: String,
    },
    /// A link that could lead out of the working directory.
    #[error("invalid target '{target}' of link '{path}': {why}")]
    Link {
        /// Its name.
        path: String,
        /// Where it leads.
        target: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Too many files.
    #[error("{count} files exceed the maximum of 20000")]
    ManyFiles {
        /// How many.
        count: usize,
    },
    /// Too large files.
    #[error("the files have {size} bytes in total, the maximum is 512 MiB")]
    LongFiles {
        /// Their size.
        size: usize,
    },
    /// It is not clear where the program begins.
    #[error("{0}")]
    Entry(String),
    /// Inline metadata that cannot be read, or whose requirements this host does not meet.
    #[error("{0}")]
    Inline(String),
    /// The program could begin in several files.
    #[error("ambiguous entry: the program could start in {files}; choose one as the entry")]
    AmbiguousEntry {
        /// Some of them.
        files: String,
    },
    /// A package that is not written as its ecosystem writes them.
    #[error("{0}")]
    Package(String),
    /// An argument for a compiler or interpreter that the language does not allow.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// Something that this language has not.
    #[error("{language} does not support {what}")]
    Unsupported {
        /// The language.
        language: String,
        /// What it has not.
        what: &'static str,
    },
    /// A tool that is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A volume or working directory that is not acceptable.
    #[error("{0}")]
    Directory(String),
    /// A terminal where there can be none.
    #[error("cannot provide a terminal: only the native backend has them (SANDBOX_BACKEND=native)")]
    Terminal,
    /// A path that is not acceptable.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl RequestError {
    /// The field of a JSON request that the error is about, if it is about one.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        match self {
            Self::EmptyCode | Self::LongCode { .. } => Some("code"),
            Self::Network(_) => Some("network"),
            Self::VariableName { .. } => Some("env"),
            Self::ManyFiles { .. }
            | Self::LongFiles { .. }
            | Self::DuplicateFile { .. }
            | Self::Link { .. }
            | Self::FileAndDirectory { .. } => Some("files"),
            Self::Entry(_) | Self::AmbiguousEntry { .. } => Some("entry"),
            Self::Package(_) => Some("requirements"),
            Self::Argument(error) => Some(error.field),
            _ => None,
        }
    }
}

impl Request {
    /// A request with no more than this.
    #[must_use]
    pub fn new(source: Source, limits: Limits, required: LayerSet) -> Self {
        Self {
            face: Face::default(),
            owner: None,
            source,
            image: None,
            template: None,
            rendered: None,
            entry: None,
            module: None,
            files: vec![],
            packages: vec![],
            restricted: false,
            args: vec![],
            interpreter_args: vec![],
            compiler_args: vec![],
            standard: None,
            env: vec![],
            workdir: None,
            volumes: vec![],
            collect: false,
            report: true,
            limits,
            network: NetworkRequest::default(),
            required,
            terminal: None,
        }
    }

    /// What came of the template, if it was rendered.
    pub(crate) fn rendered(&self) -> Option<&Rendered> {
        self.rendered.as_ref()
    }

    pub(crate) fn run_mode(&self) -> RunMode {
        match (self.restricted, self.report) {
            (true, _) => RunMode::Restricted,
            _ if self.module.is_some() => RunMode::Module,
            (false, true) => RunMode::Reported,
            (false, false) => RunMode::Plain,
        }
    }

    /// Checks everything that can be checked without a runtime.
    pub fn check(&self) -> Result<(), RequestError> {
        match &self.source {
            Source::Code(code) if code.trim().is_empty() => return Err(RequestError::EmptyCode),
            Source::Code(code) if code.len() > MAX_SOURCE => return Err(RequestError::LongCode { size: code.len() }),
            Source::Code(code) if code.contains('\0') => return Err(RequestError::Nul { what: "the code" }),
            Source::Program { argv, .. } if argv.is_empty() => return Err(RequestError::EmptyCode),
            Source::Files if self.files.is_empty() && self.module.is_none() => return Err(RequestError::EmptyCode),
            _ => {}
        }
        if self.template.is_some() && !matches!(self.source, Source::Code(_)) {
            return Err(RequestError::Entry("a template requires code, not files or a program".to_owned()));
        }
        self.check_words()?;
        input_files::check(&self.files)?;
        if let Some(workdir) = &self.workdir {
            check_workdir(workdir).map_err(RequestError::Directory)?;
        }
        check_number(&self.packages)
    }

    /// Sets what came of the template. A short template can make long code.
    pub(crate) fn set_rendered(&mut self, rendered: Rendered) -> Result<(), RequestError> {
        if rendered.code.len() > MAX_SOURCE {
            return Err(RequestError::LongCode { size: rendered.code.len() });
        }
        self.rendered = Some(rendered);
        Ok(())
    }

    fn check_words(&self) -> Result<(), RequestError> {
        let argv = match &self.source {
            Source::Program { argv, .. } => argv.as_slice(),
            Source::Code(_) | Source::Files => &[],
        };
        let has_nul = |text: &OsString| text.as_bytes().contains(&0);
        let module: Option<OsString> = self.module.as_ref().map(OsString::from);
        if argv.iter().chain(&self.args).chain(&module).any(has_nul) {
            return Err(RequestError::Nul { what: "an argument" });
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.as_bytes().contains(&b'=') || has_nul(name) {
                return Err(RequestError::VariableName { name: name.to_string_lossy().into_owned() });
            }
            if has_nul(value) {
                return Err(RequestError::Nul { what: "an environment variable" });
            }
        }
        let words =
            argv.iter().chain(&self.args).chain(&module).chain(self.env.iter().flat_map(|(name, value)| [name, value]));
        let size: usize = words.map(|word| word.len() + 2).sum();
        if size > MAX_WORDS { Err(RequestError::LongWords { size }) } else { Ok(()) }
    }

    /// All files, with the code among them, and the one where the program begins or the module.
    pub(crate) fn files_and_entry(&self, language: &Definition) -> Result<(Vec<InputFile>, String), RequestError> {
        let mut files = self.files.clone();
        if let Some(module) = &self.module {
            return Ok((files, module.clone()));
        }
        let entry = match &self.source {
            Source::Code(code) => {
                let code = self.rendered.as_ref().map_or(code, |rendered| &rendered.code);
                let entry = self.entry.clone().map_or_else(|| RelativePath::new(language.source.clone()), Ok)?;
                let file = InputFile::new(entry.clone(), Arc::clone(code));
                input_files::check_added(&files, &file)?;
                files.push(file);
                entry.as_str().to_owned()
            }
            _ => self.find_entry(language)?,
        };
        Ok((files, entry))
    }

    fn find_entry(&self, language: &Definition) -> Result<String, RequestError> {
        let has = |path: &str| self.files.iter().any(|file| file.path.as_str() == path);
        if let Some(entry) = self.entry.as_ref().map(RelativePath::as_str) {
            let missing = || RequestError::Entry(format!("the entry '{entry}' is not among the files"));
            return if has(entry) { Ok(entry.to_owned()) } else { Err(missing()) };
        }
        let found = language.entry_from.as_ref().and_then(|from| {
            let file = self.files.iter().find(|file| file.path.as_str() == from.file && !file.is_link)?;
            let text = std::str::from_utf8(&file.content).ok()?;
            Some(from.pattern.0.captures(text)?.get(1)?.as_str().to_owned())
        });
        if let Some(entry) =
            found.filter(|entry| has(entry)).or_else(|| language.entries.iter().find(|e| has(e)).cloned())
        {
            return Ok(entry);
        }
        let sources: Vec<&str> =
            self.files.iter().map(|file| file.path.as_str()).filter(|path| language.is_source(path)).collect();
        let marked = language.entry_marker.as_ref().map(|marker| {
            let is_marked = |file: &&InputFile| {
                language.is_source(file.path.as_str())
                    && std::str::from_utf8(&file.content).is_ok_and(|text| marker.0.is_match(text))
            };
            self.files.iter().filter(is_marked).collect::<Vec<_>>()
        });
        if let Some([only]) = marked.as_deref() {
            return Ok(only.path.as_str().to_owned());
        }
        let what = match sources.as_slice() {
            [only] => return Ok((*only).to_owned()),
            [] => format!(
                "no file is {} source; expected a name that ends in {}",
                language.name,
                language.extensions.join(", ")
            ),
            several => {
                let shown: Vec<_> = several.iter().take(5).copied().collect();
                return Err(RequestError::AmbiguousEntry { files: shown.join(", ") });
            }
        };
        Err(RequestError::Entry(what))
    }
}

/// Checks how many packages there are.
pub(crate) fn check_number(packages: &[String]) -> Result<(), RequestError> {
    if packages.len() > MOST_PACKAGES {
        return Err(RequestError::Package(format!("{} packages exceed the maximum of 200", packages.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox_runtimes::Registry;

    fn request(source: Source) -> Request {
        Request::new(source, Limits::default(), LayerSet::required_by_default())
    }

    fn refused(request: &Request) -> String {
        request.check().expect_err("refused").to_string()
    }

    #[test]
    fn bad_code_is_refused() {
        assert_eq!(refused(&request(Source::Code(" \n".into()))), "the code is empty");
        assert_eq!(refused(&request(Source::Code("a\0b".into()))), "the code contains a NUL byte");
        let long = refused(&request(Source::Code("x".repeat(10 << 20).into())));
        assert!(long.starts_with("the code has 10485760 bytes, the maximum is 4194304"), "{long}");
        assert_eq!(refused(&request(Source::Files)), "the code is empty");
    }

    #[test]
    fn bad_words_are_refused() {
        let program = || request(Source::Program { argv: vec!["true".into()], mount: None });
        let mut with_nul = program();
        with_nul.args = vec!["a\0".into()];
        assert_eq!(refused(&with_nul), "an argument contains a NUL byte");
        for name in ["", "A=B", "A\0"] {
            let mut bad = program();
            bad.env = vec![(name.into(), "x".into())];
            assert!(refused(&bad).contains("invalid environment variable name"), "{name:?}");
        }
        let mut long = program();
        long.args = vec!["x".repeat(200_000).into()];
        assert!(refused(&long).contains("the maximum is 131072"));
        assert_eq!(refused(&request(Source::Program { argv: vec![], mount: None })), "the code is empty");
        let mut astray = program();
        astray.workdir = Some("../x".into());
        assert!(refused(&astray).contains("expected a plain path"));
    }

    #[test]
    fn a_project_begins_where_people_expect() {
        let registry = Registry::shipped().expect("valid");
        let entry = |language: &str, files: &[(&str, &str)], named: Option<&str>| {
            let mut request = request(Source::Files);
            request.entry = named.map(|entry| RelativePath::new(entry).expect("path"));
            request.files = files
                .iter()
                .map(|(path, content)| {
                    InputFile::new(RelativePath::new(*path).expect("path"), content.as_bytes().to_vec())
                })
                .collect();
            let found = request.files_and_entry(registry.by_name(language).expect("known"));
            found.map(|(_, entry)| entry).map_err(|error| error.to_string())
        };
        assert_eq!(entry("python", &[("util.py", ""), ("main.py", "")], None), Ok("main.py".into()));
        assert_eq!(entry("python", &[("util.py", ""), ("main.py", "")], Some("util.py")), Ok("util.py".into()));
        assert_eq!(entry("python", &[("only.py", ""), ("data.csv", "")], None), Ok("only.py".into()));
        let package = "{\"main\": \"./lib/start.js\"}";
        let files = [("package.json", package), ("index.js", ""), ("lib/start.js", "")];
        assert_eq!(entry("js", &files, None), Ok("lib/start.js".into()));
        assert_eq!(entry("rust", &[("src/main.rs", ""), ("src/util.rs", "")], None), Ok("src/main.rs".into()));
        let main = "package org.example;\nclass App { public static void main(String[] args) {} }";
        let files = [("src/org/example/App.java", main), ("src/org/example/Other.java", "class Other {}")];
        assert_eq!(entry("java", &files, None), Ok("src/org/example/App.java".into()));
        let several = entry("python", &[("a.py", ""), ("b.py", "")], None).expect_err("unclear");
        assert_eq!(several, "ambiguous entry: the program could start in a.py, b.py; choose one as the entry");
        assert!(entry("go", &[("a.py", "")], None).expect_err("none").starts_with("no file is go source"));
        assert!(entry("go", &[("a.go", "")], Some("b.go")).expect_err("missing").contains("not among the files"));
    }

    #[test]
    fn code_takes_its_place_among_the_files() {
        let registry = Registry::shipped().expect("valid");
        let python = registry.by_name("python").expect("known");
        let mut request = request(Source::Code("1".into()));
        request.entry = Some(RelativePath::new("pkg/x.py").expect("path"));
        let (files, entry) = request.files_and_entry(python).expect("valid");
        assert_eq!((files.len(), entry.as_str()), (1, "pkg/x.py"));
        request.files = files;
        let error = request.files_and_entry(python).expect_err("twice").to_string();
        assert_eq!(error, "duplicate file 'pkg/x.py'");
    }
}
