//! Which programs and compilers may start warm, as the child of a zygote that waits in a ready cell. What the cell itself must be like is decided by the pool (`sandbox-pool/src/order.rs`).

use sandbox_pool::Prestart;
use sandbox_runtimes::{Entry, Invocation, Runtime, WarmUp};

use crate::plan::Plan;
use crate::request::Request;

/// The zygote whose children can run a request's program faithfully, if there is one. Compiled programs start by
/// themselves, and so do an interpreter that reads one of the request's variables when it starts, and one with a
/// terminal, which has to begin its session.
pub(crate) fn zygote_for(
    request: &Request,
    runtime: &Runtime,
    invocation: &Invocation<'_>,
    is_compiled: bool,
) -> Option<WarmUp> {
    let mut names = request.env.iter().map(|(name, _)| name.as_os_str());
    let reads_variable = runtime.definition.run.warm.as_ref()?.is_cold(&mut names);
    // It reads its arguments when it starts.
    let has_arguments = !request.interpreter_args.is_empty();
    // Whether a directory can be entered is found out by starting a program in it.
    let starts_elsewhere = request.workdir.is_some();
    if reads_variable || has_arguments || starts_elsewhere || is_compiled || request.terminal.is_some() {
        None
    } else {
        runtime.zygote(invocation)
    }
}

/// The process that can wait for a plan's program that uses these packages.
pub(crate) fn prestart_for_run<'a>(plan: &Plan, packages: impl Iterator<Item = &'a Entry>) -> Option<Prestart> {
    Prestart::zygote(plan.zygote.as_ref()?, packages, plan.owner.as_deref())
}

/// What can wait for a compiler that uses `packages`, and in whose cell these entries are shown. Without packages it holds
/// nothing of any request, and waits for all owners.
pub(crate) fn prestart_for_compiler<'a>(
    plan: &Plan,
    zygote: Option<&WarmUp>,
    packages: bool,
    shown: impl Iterator<Item = &'a Entry>,
) -> Option<Prestart> {
    Prestart::compiler(zygote?, shown, plan.owner.as_deref().filter(|_| packages))
}
