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
    Executor, HostVariables, Input, JsonRequest, NetworkMode, Preparation, PreparationState, PreparePriority,
    RENDER_COMMAND, Refused, Request, RunResult, RunService, Settings, Source, TemplateRequest, Verdict,
};
use sandbox_images::{ImageCaps, ImageName, ImageStore, UnpackTask, unpack};
use sandbox_runtimes::Registry;
use sandbox_testing::{eventually, shell_image, staged_languages};

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
    let languages = staged_languages(&[("slow", "sleep 300")]);
    let (executor, mut registry) = (Executor::start().unwrap(), Registry::shipped().unwrap());
    registry.add_directory(languages.path()).unwrap();
    let renderer = std::env::current_exe().unwrap();
    let service = Arc::new(RunService::new(executor, settings, registry, HostVariables::default(), renderer));
    let tests: [Test; 5] = [
        ("a_template_that_is_being_rendered_is_cancelled", a_render_is_cancelled),
        ("a_cell_with_a_gateway_is_not_waited_for_in_vain", a_gateway_is_cancelled),
        ("an_image_that_does_not_answer_is_not_waited_for_in_vain", an_image_is_cancelled),
        ("a_volume_that_another_run_uses_is_not_waited_for_in_vain", a_volume_is_cancelled),
        ("a_toolchain_that_is_being_prepared_is_not_waited_for_in_vain", a_wait_for_a_toolchain_is_cancelled),
    ];
    let trials = tests.map(|(name, test)| {
        let service = Arc::clone(&service);
        Trial::test(name, move || {
            test(&service);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials.into());
    drop((service, languages));
    conclusion.exit();
}

fn request(service: &RunService) -> Request {
    let settings = service.settings();
    Request::new(Source::Code("echo hello".into()), settings.defaults.clone(), settings.required())
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
    let checked = service.check(request, Some(bash), Input::Empty, &[]).unwrap();
    service.run(checked, Duration::ZERO, &[cancel.as_fd()], &mut ()).unwrap()
}

fn expect_cancelled(result: &RunResult) {
    assert_eq!((result.verdict, result.error.as_deref()), (Verdict::Cancelled, Some("cancelled by the caller")));
    assert_eq!(result.language.as_deref(), Some("bash"));
}

fn a_render_is_cancelled(service: &RunService) {
    let (name, text) = ("slow".to_owned(), "{{ code }}".to_owned());
    let template = Some(TemplateRequest { name, text: text.into(), variables: BTreeMap::new().into() });
    let began = Instant::now();
    let mut request = request(service);
    request.template = template;
    expect_cancelled(&run(service, request, &cancel_after(Duration::from_millis(100))));
    // Without being cancelled, it would take as long as the renderer.
    assert!(began.elapsed() < RENDER, "{:?}", began.elapsed());
}

fn a_gateway_is_cancelled(service: &RunService) {
    let mut request = request(service);
    request.network.mode = NetworkMode::Full;
    expect_cancelled(&run(service, request, &cancel_after(Duration::ZERO)));
}

fn an_image_is_cancelled(service: &RunService) {
    let images = ImageStore::new(service.settings().data_dir.as_deref().unwrap());
    let import = images.import().unwrap();
    let archive = shell_image(&[("python3", "#!/bin/sh\nwhile :; do :; done\n")]);
    let caps = ImageCaps { entries: 100, bytes: 100 << 20 };
    let unpacked = unpack(&archive, import.dir(), UnpackTask { caps }).unwrap();
    import.publish(unpacked, Some(&ImageName::new("endless").unwrap()), "").unwrap();
    let (image, code) = (Some("endless".to_owned()), Some("1".into()));
    let json = JsonRequest { language: Some("python".to_owned()), image, code, ..JsonRequest::default() };
    let (began, cancel) = (Instant::now(), cancel_after(Duration::from_millis(100)));
    let refused = service.check_json(json, None, &[cancel.as_fd()]).unwrap_err();
    assert!(matches!(refused, Refused::Cancelled), "{refused}");
    // Without being cancelled, it ends after 30 seconds.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    images.remove("endless").unwrap();
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

fn a_wait_for_a_toolchain_is_cancelled(service: &RunService) {
    let slow = service.language("slow").unwrap();
    let state = || service.preparations().remove("slow").unwrap_or(PreparationState::Pending);
    std::thread::scope(|scope| {
        let (end, ended) = rustix::pipe::pipe().unwrap();
        let preparing =
            scope.spawn(move || service.prepare(slow, PreparePriority::Background, &[end.as_fd()], &mut ()));
        eventually("another prepares it", || state() == PreparationState::Preparing);
        let (began, cancel) = (Instant::now(), cancel_after(Duration::from_millis(100)));
        let checked = service.check(request(service), Some(slow), Input::Empty, &[]).unwrap();
        let result = service.run(checked, Duration::ZERO, &[cancel.as_fd()], &mut ()).unwrap();
        assert_eq!(result.verdict, Verdict::Cancelled, "{result:?}");
        assert!(result.metrics.phases.toolchain >= 0.05, "{result:?}");
        // The preparation takes 300 seconds. The polling interval is checked where it is defined.
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        assert_eq!(state(), PreparationState::Preparing, "the preparation goes on");
        drop(ended);
        let ended = preparing.join().unwrap().unwrap();
        assert!(matches!(ended, Preparation::Failed(result) if result.verdict == Verdict::Cancelled));
        assert_eq!(state(), PreparationState::Pending);
    });
}
