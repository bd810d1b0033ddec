//! Every language through the library, without the command line.
//!
//! The keeper must be started while the process has one thread, so this file has a `main` of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::{Arc, Mutex};

use libtest_mimic::Arguments;
use sandbox_cell::limits::Caps;
use sandbox_cell::{LimitKind, RelativePath};
use sandbox_executor::{Executor, Host, Input, InputFile, Request, Settings, Source};
use sandbox_runtimes::{Memory, Places, Registry, Store};
use sandbox_testing::features::{Case, Runner};
use serde_json::Value;

fn main() {
    let executor = Arc::new(Executor::start().unwrap());
    let data_dir = sandbox_testing::data_dir();
    let settings = Settings { data_dir: Some(data_dir.clone()), ..Settings::default() };
    let memory = Mutex::new(Memory::open(Some(&data_dir)));
    let registry = Registry::shipped().unwrap();
    let inner = Arc::clone(&executor);
    let runner: Arc<Runner> = Arc::new(move |case| run(&inner, &settings, &registry, &memory, case));
    let trials = sandbox_testing::features::trials(&runner);
    drop(runner);
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    drop(executor);
    conclusion.exit();
}

fn run(executor: &Executor, settings: &Settings, registry: &Registry, memory: &Mutex<Memory>, case: &Case) -> Value {
    let definition = registry.by_name(&case.language).unwrap();
    let runtime = definition.discover(&Places::of_this_process(), &mut memory.lock().unwrap()).unwrap();
    let source = case.code.clone().map_or(Source::Files, Source::Code);
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
        .map(|(name, content)| InputFile {
            path: RelativePath::new(name.clone()).unwrap(),
            content: content.clone().into_bytes(),
            executable: false,
        })
        .collect();
    request.packages.clone_from(&case.packages);
    request.args = case.args.iter().map(Into::into).collect();
    request.collect = true;
    let plan = request.plan(Some(&runtime), settings, |name| std::env::var_os(name)).unwrap();
    let data_dir = settings.data_dir.as_deref().unwrap();
    let store = Store::new(data_dir);
    let host = Host { store: &store, settings };
    let input = Input::Bytes(case.stdin.clone().into_bytes());
    serde_json::to_value(executor.run(&plan, host, input, &[], &mut ()).unwrap()).unwrap()
}
