//! A request, checked completely before anything is created, and the plan that follows from it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use sandbox_cell::{CellSpec, Command, LayerSet, Limits, Mount, Network, PathError, RelativePath};
use sandbox_runtimes::Runtime;

/// The longest source text.
pub(crate) const MAX_SOURCE: usize = 4 << 20;

/// The most that arguments and environment may have together.
const MAX_WORDS: usize = 128 << 10;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A program in a language, as text.
    Code(String),
    /// A program of the system, with its arguments.
    Program {
        /// The program and its arguments.
        argv: Vec<OsString>,
        /// A file of the host's to show in the cell, read-only.
        mount: Option<Mount>,
    },
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to run.
    pub source: Source,
    /// Arguments of the program.
    pub args: Vec<OsString>,
    /// Variables for the program.
    pub env: Vec<(OsString, OsString)>,
    /// What it may use.
    pub limits: Limits,
    /// What it can reach.
    pub network: Network,
    /// Layers that must be there.
    pub required: LayerSet,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no code.
    #[error("the code is empty")]
    EmptyCode,
    /// The code is too long.
    #[error("the code has {size} bytes, the most is {MAX_SOURCE}; keep data out of it")]
    LongCode {
        /// Its size.
        size: usize,
    },
    /// A NUL byte where none can be.
    #[error("{what} contains a NUL byte")]
    Nul {
        /// Where.
        what: &'static str,
    },
    /// A name that no variable can have.
    #[error("'{name}' is not a name for an environment variable")]
    VariableName {
        /// The name.
        name: String,
    },
    /// Too many or too long arguments and variables.
    #[error("arguments and environment have {size} bytes together, the most is {MAX_WORDS}")]
    LongWords {
        /// Their size.
        size: usize,
    },
    /// A path that is not acceptable.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// All that is needed to carry out a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(crate) language: Option<(String, String)>,
    pub(crate) cell: CellSpec,
    pub(crate) command: Command,
    pub(crate) files: Vec<(RelativePath, Vec<u8>)>,
}

impl Plan {
    /// The language and the toolchain's version, if it is code in one.
    #[must_use]
    pub fn language(&self) -> (Option<&str>, Option<&str>) {
        self.language.as_ref().map(|(name, version)| (name.as_str(), version.as_str())).unzip()
    }
}

impl Request {
    /// Makes a plan. `runtime` is the language's; a program of the system needs none.
    pub fn plan(&self, runtime: Option<&Runtime>) -> Result<Plan, RequestError> {
        self.check()?;
        let mut cell =
            CellSpec { mounts: vec![], limits: self.limits.clone(), network: self.network, required: self.required };
        match (&self.source, runtime) {
            (Source::Code(code), Some(runtime)) => {
                cell.mounts.clone_from(&runtime.mounts);
                let path = RelativePath::new(runtime.source.clone())?;
                let command = runtime.plan(path.as_str(), &self.args, &self.env);
                let files = vec![(path, code.clone().into_bytes())];
                let language = Some((runtime.language.clone(), runtime.version.clone()));
                Ok(Plan { language, cell, command, files })
            }
            (Source::Code(_), None) => Err(RequestError::EmptyCode),
            (Source::Program { argv, mount }, _) => {
                cell.mounts.extend(mount.clone());
                let mut command = Command::new(argv.iter().chain(&self.args).cloned());
                command.env.retain(|(name, _)| !self.env.iter().any(|(own, _)| own == name));
                command.env.extend(self.env.iter().cloned());
                Ok(Plan { language: None, cell, command, files: vec![] })
            }
        }
    }

    /// Checks everything that can be checked without a runtime.
    pub fn check(&self) -> Result<(), RequestError> {
        match &self.source {
            Source::Code(code) if code.trim().is_empty() => return Err(RequestError::EmptyCode),
            Source::Code(code) if code.len() > MAX_SOURCE => return Err(RequestError::LongCode { size: code.len() }),
            Source::Code(code) if code.contains('\0') => return Err(RequestError::Nul { what: "the code" }),
            Source::Program { argv, .. } if argv.is_empty() => return Err(RequestError::EmptyCode),
            _ => {}
        }
        let argv = match &self.source {
            Source::Program { argv, .. } => argv.as_slice(),
            Source::Code(_) => &[],
        };
        let has_nul = |text: &OsString| text.as_bytes().contains(&0);
        if argv.iter().chain(&self.args).any(has_nul) {
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
        let words = argv.iter().chain(&self.args).chain(self.env.iter().flat_map(|(name, value)| [name, value]));
        let size: usize = words.map(|word| word.len() + 2).sum();
        if size > MAX_WORDS {
            return Err(RequestError::LongWords { size });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(source: Source) -> Request {
        Request {
            source,
            args: vec![],
            env: vec![],
            limits: Limits::default(),
            network: Network::None,
            required: LayerSet::required_by_default(),
        }
    }

    fn refused(request: &Request) -> String {
        request.plan(None).expect_err("refused").to_string()
    }

    #[test]
    fn bad_code_is_refused() {
        assert_eq!(refused(&request(Source::Code(" \n".into()))), "the code is empty");
        assert_eq!(refused(&request(Source::Code("a\0b".into()))), "the code contains a NUL byte");
        let long = refused(&request(Source::Code("x".repeat(10 << 20))));
        assert!(long.starts_with("the code has 10485760 bytes, the most is 4194304"), "{long}");
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
            assert!(refused(&bad).contains("is not a name"), "{name:?}");
        }
        let mut long = program();
        long.args = vec!["x".repeat(200_000).into()];
        assert!(refused(&long).contains("the most is 131072"));
        assert_eq!(refused(&request(Source::Program { argv: vec![], mount: None })), "the code is empty");
    }

    #[test]
    fn a_program_is_planned_with_the_users_variables_last() {
        let mut request = request(Source::Program { argv: vec!["env".into()], mount: None });
        request.args = vec!["-0".into()];
        request.env = vec![("HOME".into(), "/x".into())];
        let plan = request.plan(None).expect("valid");
        assert_eq!(plan.command.argv, ["env", "-0"]);
        let homes: Vec<_> = plan.command.env.iter().filter(|(name, _)| name == "HOME").collect();
        assert_eq!(homes.len(), 1);
        assert_eq!(homes[0].1, "/x");
    }
}
