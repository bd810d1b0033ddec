//! A run whose caller goes away ends as cancelled, whatever it waits for before its program begins.
//!
//! The keeper is this same program, started once more, so this file has a `main` of its own. So is the renderer of
//! templates, which takes its time here.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should panic")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use sandbox_executor::{
    Executor, HostVariables, Input, NetworkMode, RENDER_COMMAND, Request, RunResult, RunService, Settings, Source,
    TemplateRequest, Verdict,
};
use sandbox_runtimes::Registry;

/// How long the renderer takes: less than its limit, and much longer than it may take to notice a cancellation.
const RENDER: Duration = Duration::from_secs(4);

type Test = (&'static str, fn(&RunService));

fn main() {
    if std::env::args().nth(1).as_deref() == Some(RENDER_COMMAND) {
        std::thread::sleep(RENDER);
        return;
    }
    sandbox_cell::keeper_main_if_asked(None);
    let settings = Settings { data_dir: Some(sandbox_testing::data_dir()), ..Settings::default() };
    let (executor, registry) = (Executor::start().unwrap(), Registry::shipped().unwrap());
    let renderer = std::env::current_exe().unwrap();
    let service = Arc::new(RunService::new(executor, settings, registry, HostVariables::default(), renderer));
    let tests: [Test; 3] = [
        ("a_template_that_is_being_rendered_is_cancelled", a_render_is_cancelled),
        ("a_cell_with_a_gateway_is_not_waited_for_in_vain", a_gateway_is_cancelled),
        ("a_volume_that_another_run_uses_is_not_waited_for_in_vain", a_volume_is_cancelled),
    ];
    let trials = tests.map(|(name, test)| {
        let service = Arc::clone(&service);
        Trial::test(name, move || {
            test(&service);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials.into());
    drop(service);
    conclusion.exit();
}

fn request(service: &RunService) -> Request {
    let settings = service.settings();
    Request::new(Source::Code("echo hello".to_owned()), settings.defaults.clone(), settings.required())
}

/// A descriptor that becomes readable after this time.
fn cancel_after(time: Duration) -> OwnedFd {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    if time.is_zero() {
        drop(writer);
    } else {
        std::thread::spawn(move || {
            std::thread::sleep(time);
            drop(writer);
        });
    }
    reader
}

fn run(service: &RunService, request: Request, cancel: &OwnedFd) -> Arc<RunResult> {
    let bash = service.language("bash").unwrap();
    let checked = service.check(request, Some(bash), Input::Empty).unwrap();
    service.run(checked, Duration::ZERO, &[cancel.as_fd()], &mut ()).unwrap()
}

fn expect_cancelled(result: &RunResult) {
    assert_eq!((result.verdict, result.error.as_deref()), (Verdict::Cancelled, Some("cancelled by the caller")));
    assert_eq!(result.language.as_deref(), Some("bash"));
}

fn a_render_is_cancelled(service: &RunService) {
    let (name, text) = ("slow".to_owned(), "{{ code }}".to_owned());
    let template = Some(TemplateRequest { name, text, variables: BTreeMap::new() });
    let began = Instant::now();
    let mut request = request(service);
    request.template = template;
    expect_cancelled(&run(service, request, &cancel_after(Duration::from_millis(100))));
    assert!(began.elapsed() < RENDER / 2, "{:?}", began.elapsed());
}

fn a_gateway_is_cancelled(service: &RunService) {
    let mut request = request(service);
    request.network.mode = NetworkMode::Full;
    expect_cancelled(&run(service, request, &cancel_after(Duration::ZERO)));
}

fn a_volume_is_cancelled(service: &RunService) {
    let mut request = request(service);
    request.volumes = vec![sandbox_executor::VolumeRequest::parse("cancel-test:/data").unwrap()];
    let dir: PathBuf = service.settings().data_dir.clone().unwrap().join("volumes");
    sandbox_base::data_dir::make_dir(&dir).unwrap();
    let kind = sandbox_base::lock_file::LockKind::Exclusive;
    let _held = sandbox_base::lock_file::lock(&dir.join("cancel-test.lock"), kind, 0o600).unwrap();
    expect_cancelled(&run(service, request, &cancel_after(Duration::from_millis(100))));
}
