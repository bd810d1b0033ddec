//! Every language through the library, without the command line.
//!
//! The keeper is this same program, started once more, so this file has a `main` of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Arguments;
use sandbox_base::limits::Caps;
use sandbox_base::{LimitKind, RelativePath};
use sandbox_executor::{Executor, HostVariables, Input, InputFile, Request, RunService, Settings, Source};
use sandbox_runtimes::Registry;
use sandbox_testing::features::{Case, LanguageDir, Runner};
use serde_json::Value;

fn main() {
    sandbox_cell::keeper_main_if_asked(None);
    let settings = Settings { data_dir: Some(sandbox_testing::data_dir()), ..Settings::default() };
    let (executor, registry) = (Executor::start().unwrap(), Registry::shipped().unwrap());
    let variables = HostVariables::of_this_process();
    // No case has a template, so that nothing has to be rendered.
    let service = Arc::new(RunService::new(executor, settings, registry, variables, PathBuf::new()));
    let inner = Arc::clone(&service);
    let runner: Arc<Runner> = Arc::new(move |case| run(&inner, case));
    let trials = LanguageDir::shipped().trials(&runner);
    drop(runner);
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    drop(service);
    conclusion.exit();
}

fn run(service: &RunService, case: &Case) -> Value {
    let settings = service.settings();
    let source = case.code.clone().map_or(Source::Files, |code| Source::Code(code.into()));
    let mut limits = settings.defaults.clone();
    for (kind, text) in [(LimitKind::WallTime, case.timeout), (LimitKind::Memory, case.memory)] {
        if let Some(text) = text {
            limits.set(kind, kind.parse(text).unwrap(), &Caps::default()).unwrap();
        }
    }
    let mut request = Request::new(source, limits, settings.required());
    request.files = case
        .files
        .iter()
        .map(|(name, content)| InputFile::new(RelativePath::new(name.clone()).unwrap(), content.clone().into_bytes()))
        .collect();
    request.packages.clone_from(&case.packages);
    request.args = case.args.iter().map(Into::into).collect();
    request.collect = true;
    let input = Input::Bytes(case.stdin.clone().into_bytes().into());
    let language = service.language(&case.language).unwrap();
    let checked = service.check(request, Some(language), input, &[]).unwrap();
    serde_json::to_value(service.run(checked, Duration::ZERO, &[], &mut ()).unwrap()).unwrap()
}
