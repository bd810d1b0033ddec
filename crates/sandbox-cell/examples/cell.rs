//! Runs a command in a cell: `cargo run -p sandbox-cell --example cell -- echo hello`

use std::os::fd::AsFd;

use sandbox_cell::{CellSpec, Command, Keeper, Stdio};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    sandbox_cell::keeper_main_if_asked(None);
    let keeper = Keeper::start()?;
    let argv: Vec<_> = std::env::args_os().skip(1).collect();
    let mut cell = keeper.create(&CellSpec::new())?;
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let stdio = Stdio { stdin: stdin.as_fd(), stdout: stdout.as_fd(), stderr: stderr.as_fd() };
    let outcome = cell.run(&Command::new(argv), stdio, None)?;
    let layers: Vec<_> = cell.ready()?.isolation.iter().map(sandbox_cell::Layer::name).collect();
    cell.delete()?;
    #[expect(clippy::print_stderr, reason = "an example shows what happened")]
    {
        eprintln!("{outcome:#?}\nisolation: {}", layers.join(" "));
    }
    Ok(())
}
