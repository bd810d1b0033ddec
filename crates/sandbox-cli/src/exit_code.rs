//! Exit codes of `sandbox-run`: the program's own, or one that explains why there is none.

use sandbox_executor::{RunResult, Verdict};

/// Invalid command line or request.
pub(crate) const USAGE: u8 = 2;
/// The program timed out.
pub(crate) const TIMEOUT: u8 = 124;
/// The sandbox itself failed.
pub(crate) const INTERNAL: u8 = 125;
/// The program was killed because of a limit.
pub(crate) const LIMIT: u8 = 137;
/// The reader of the output has gone: 128 plus SIGPIPE, as in a shell.
pub(crate) const UNREAD: u8 = 141;

/// Every exit code that is not the program's own, for help and documents.
pub(crate) const TABLE: [(&str, &str); 5] = [
    ("124", "timed out"),
    ("137", "killed by a limit"),
    ("130", "interrupted (143 by SIGTERM, 129 by SIGHUP)"),
    ("125", "the sandbox failed, or a file was not written to --output-dir"),
    ("2", "invalid arguments or request"),
];

/// The same as a table in Markdown.
#[cfg(test)]
pub(crate) fn table() -> String {
    let passed_on = [
        ("the program's own", "the program ended by itself"),
        ("the compiler's or installer's", "compiling or installing failed, so the program never started"),
    ];
    let rows = passed_on.into_iter().chain(TABLE).map(|(code, meaning)| [code.to_owned(), meaning.to_owned()]);
    sandbox_manual::table(["exit code", "meaning"], rows)
}

/// The exit code: the program's own if it ended by itself.
pub(crate) fn of_result(result: &RunResult, interrupted: Option<i32>) -> u8 {
    let own = result.exit_code.and_then(|code| u8::try_from(code).ok());
    match result.verdict {
        Verdict::Ok => own.unwrap_or_else(|| by_signal(result)),
        // A program can fail with exit code 0: if it ends before its template does.
        Verdict::RuntimeError if own == Some(0) => 1,
        Verdict::RuntimeError => own.unwrap_or_else(|| by_signal(result)),
        Verdict::CompileError | Verdict::PackageError => own.filter(|code| *code != 0).unwrap_or(1),
        Verdict::Timeout => TIMEOUT,
        Verdict::Cancelled => 128 + interrupted.and_then(|signal| u8::try_from(signal).ok()).unwrap_or(UNREAD - 128),
        Verdict::InternalError => INTERNAL,
        Verdict::InvalidRequest => USAGE,
        Verdict::MemoryLimit | Verdict::OutputLimit | Verdict::DiskLimit | Verdict::ProcessLimit => {
            own.unwrap_or(LIMIT)
        }
    }
}

/// As in a shell: 128 plus the signal number.
fn by_signal(result: &RunResult) -> u8 {
    let signal = result.signal.as_deref().unwrap_or_default();
    (1..=64_u8).find(|n| sandbox_sys::signal::name(i32::from(*n)) == signal).map_or(LIMIT, |n| 128 + n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes() {
        let code = |verdict, exit_code, signal: Option<&str>, interrupted| {
            let mut result = RunResult::internal_error(String::new());
            result.verdict = verdict;
            result.exit_code = exit_code;
            result.signal = signal.map(str::to_owned);
            of_result(&result, interrupted)
        };
        assert_eq!(code(Verdict::Ok, Some(0), None, None), 0);
        assert_eq!(code(Verdict::RuntimeError, Some(3), None, None), 3);
        assert_eq!(code(Verdict::RuntimeError, Some(0), None, None), 1);
        assert_eq!(code(Verdict::CompileError, Some(1), None, None), 1);
        assert_eq!(code(Verdict::RuntimeError, None, Some("SIGSEGV"), None), 139);
        assert_eq!(code(Verdict::Timeout, Some(0), None, None), 124);
        assert_eq!(code(Verdict::MemoryLimit, None, Some("SIGKILL"), None), 137);
        assert_eq!(code(Verdict::DiskLimit, Some(1), None, None), 1);
        assert_eq!(code(Verdict::Cancelled, None, Some("SIGTERM"), Some(2)), 130);
        assert_eq!(code(Verdict::InternalError, None, None, None), 125);
    }
}
