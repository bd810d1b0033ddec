//! Which runs may start warm, as the child of a zygote, and which have to start cold.

use sandbox_runtimes::Definition;

use crate::request::Request;

/// Whether a zygote of the language may serve a run. Compiled programs have no interpreter to warm up, some variables change
/// how the interpreter itself starts, and whether a working directory can be entered is found out by starting a program
/// in it.
pub(crate) fn may_start_warm(request: &Request, definition: &Definition, compiles: bool) -> bool {
    let mut names = request.env.iter().map(|(name, _)| name.as_os_str());
    let cold = definition.run.warm.as_ref().is_none_or(|warm| warm.is_cold(&mut names));
    !cold && !compiles && request.workdir.is_none()
}
