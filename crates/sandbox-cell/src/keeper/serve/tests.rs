//! The loop of the keeper, step by step.

use std::process::{Command, Stdio};

use rustix::process::Pid;

use super::*;

/// The answer of a keeper that would create the cell, if it could create any.
const NO_FACTORY: &str = "cells cannot be created in a test";

fn server(control: &OwnedFd) -> KeeperServer<'_> {
    KeeperServer {
        control,
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll"),
        // A factory needs a process with one thread.
        factory: Err(Failure::new(NO_FACTORY, "it has threads")),
        cells: HashMap::new(),
        deadlines: Deadlines::default(),
        clearing: HashMap::new(),
        bridges: Bridges::new(None),
        leaving: HashMap::new(),
        next: 0,
        closing: false,
        swept: false,
        buffer: vec![0; wire::MAX_MESSAGE],
    }
}

/// The failure with which the keeper answers a request for a cell.
fn refusal(server: &mut KeeperServer<'_>) -> String {
    let (caller, keeper) = wire::pair().expect("a connection");
    server.create(CellSpec::new(), keeper);
    match wire::receive(&caller, &mut server.buffer, RecvFlags::empty()) {
        Ok(Received::Message(FromCell::Failed(failure), _)) => failure.to_string(),
        _ => panic!("no failure"),
    }
}

/// A dead cell whose directory is being removed, and the process that removes it: it ends when its input is closed.
fn add_clearing(server: &mut KeeperServer<'_>) -> (std::process::Child, OwnedFd) {
    let process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
    let pid = Pid::from_child(&process);
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("a pidfd");
    let (caller, keeper) = wire::pair().expect("a connection");
    let number = server.next;
    server.next += 1;
    let events = epoll::EventFlags::IN;
    epoll::add(&server.epoll, &pidfd, token(number, EventSource::Exit), events).expect("watched");
    let helper = Child { pid, pidfd };
    server.clearing.insert(number, ClearingCell { helper, ids: CellIds::One, _caller: keeper });
    (process, caller)
}

/// Handles the next event of a cell.
fn handle_event(server: &mut KeeperServer<'_>) {
    let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
    let patience = timespec(Duration::from_secs(60));
    epoll::wait(&server.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)).expect("an event");
    let token = events.first().expect("an event in time").data.u64();
    server.on_cell(token >> 2, token & 3);
}

#[test]
fn no_cells_are_created_while_the_files_of_too_many_are_removed() {
    let (control, _caller) = wire::pair().expect("a connection");
    let mut server = server(&control);
    let mut cells = vec![];
    while cells.len() < MOST_CLEARING {
        let refused = refusal(&mut server);
        assert!(refused.contains(NO_FACTORY), "{refused}");
        cells.push(add_clearing(&mut server));
    }
    let refused = refusal(&mut server);
    let expected = format!("the files of {MOST_CLEARING} earlier cells are still being removed; try again later");
    assert!(refused.contains(&expected), "{refused}");
    assert!(!server.is_empty(), "the keeper waits for them");

    for (mut process, caller) in cells {
        drop(process.stdin.take());
        handle_event(&mut server);
        // Its caller learns that nothing is left.
        assert!(matches!(
            wire::receive::<FromCell>(&caller, &mut server.buffer, RecvFlags::empty()),
            Ok(Received::Closed)
        ));
        let refused = refusal(&mut server);
        assert!(refused.contains(NO_FACTORY), "{refused}");
    }
    assert!(server.is_empty());
}
