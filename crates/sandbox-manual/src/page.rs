//! Man pages. Adds what `clap_mangen` does not support: a short synopsis, sections with examples and exit codes,
//! variables.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use sandbox_base::limits::TABLE as LIMITS;
use sandbox_executor::VARIABLES;

use crate::{sections, subcommands};

/// The pages of a command and of its subcommands, each with its file name.
pub fn pages(command: Command, section: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = vec![];
    collect(&command, section, &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, section: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    pages.push((format!("{name}.{section}"), page(command.clone(), section)?));
    subcommands(command).try_for_each(|below| collect(below, section, pages))
}

/// A command's page.
pub fn page(command: Command, section: &str) -> io::Result<Vec<u8>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let is_program = command.get_version().is_some();
    let source = format!("sandbox-run {}", env!("CARGO_PKG_VERSION"));
    // An empty date would be omitted, and the next field taken for the date. A real one would differ between builds.
    let man = Man::new(command.clone()).section(section).date(" ").source(source).manual("Sandbox Manual");
    let mut page = vec![];
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(&mut command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if subcommands(&command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    for (heading, text) in sections(&command) {
        let heading = match heading.as_str() {
            "" => "NOTES".to_owned(),
            "Exit code" => "EXIT STATUS".to_owned(),
            other => other.to_uppercase(),
        };
        verbatim(&heading, &text).to_writer(&mut page)?;
    }
    if is_program {
        environment().to_writer(&mut page)?;
    }
    Ok(page)
}

/// The synopsis. `clap_mangen` would list every flag.
fn synopsis(command: &mut Command) -> Roff {
    let usage = command.render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for (number, line) in usage.trim_start_matches("Usage:").lines().map(str::trim).enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        roff.text([bold(line)]);
    }
    roff
}

/// A section whose lines are not filled.
fn verbatim(heading: &str, text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]).control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff
}

fn environment() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["ENVIRONMENT"]);
    for variable in VARIABLES {
        let default = variable.default.text();
        let default = if default.is_empty() { String::new() } else { format!(" [default: {default}]") };
        roff.control("TP", []).text([bold(variable.name)]).text([roman(format!("{}{default}", variable.help))]);
    }
    for limit in LIMITS {
        let help = format!("the default of --{}, and the most that a run may ask for", limit.flag);
        roff.control("TP", [])
            .text([bold(limit.default_variable), roman(", "), bold(limit.cap_variable)])
            .text([roman(help)]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_page() {
        let below = [Command::new("b").about("does b"), Command::new("secret").hide(true)];
        let command = Command::new("a").version("1").about("does a").after_help("Examples:\n  a b").subcommands(below);
        let pages = pages(command, "1").expect("rendered");
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.1", "a-b.1"]);
        let page = String::from_utf8_lossy(&pages[0].1);
        for expected in [
            "\"Sandbox Manual\"",
            ".SH NAME\na \\- does a",
            ".SH EXAMPLES\n.nf\n  a b\n.fi",
            "\\fBSANDBOX_DATA_DIR\\fR",
        ] {
            assert!(page.contains(expected), "{expected}:\n{page}");
        }
        assert!(!String::from_utf8_lossy(&pages[1].1).contains("ENVIRONMENT"));
    }
}
