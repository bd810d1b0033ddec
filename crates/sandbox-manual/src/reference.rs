//! The reference of a command, as Markdown.

use clap::builder::StyledStr;
use clap::{Arg, Command};

use crate::generated::cell;
use crate::{sections, subcommands};

/// A command with its flags, and all commands below it.
#[must_use]
pub fn chapter(command: Command) -> String {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut text = String::new();
    describe(&command, &mut text);
    text.trim_end().to_owned()
}

fn describe(command: &Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let plain = |styled: Option<&StyledStr>| styled.map(ToString::to_string).unwrap_or_default();
    let about = command.get_long_about().or(command.get_about());
    let heading = if command.get_version().is_some() { "##" } else { "###" };
    text.push_str(&format!("{heading} {name}\n\n{}\n\n", plain(about).trim_end()));
    let usage = command.clone().render_usage().to_string();
    text.push_str(&format!("```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ")));
    let arguments: Vec<&Arg> = command.get_arguments().filter(|argument| !argument.is_hide_set()).collect();
    if !arguments.is_empty() {
        text.push_str("| flag | meaning |\n|---|---|\n");
    }
    for argument in arguments {
        text.push_str(&format!("| {} | {} |\n", code(&flag(argument)), cell(&meaning(argument))));
    }
    text.push('\n');
    for (heading, lines) in sections(command) {
        let heading = if heading.is_empty() { heading } else { format!("{heading}:\n\n") };
        text.push_str(&format!("{heading}```text\n{lines}\n```\n\n"));
    }
    for below in subcommands(command) {
        describe(below, text);
    }
}

/// A flag as it is written: `-t, --timeout <DURATION>`, or the name of a positional argument.
fn flag(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.join(" ");
    let takes = argument.get_num_args().is_some_and(|number| number.takes_values()) && !value.is_empty();
    match (argument.get_short(), argument.get_long()) {
        (None, None) if argument.is_last_set() => format!("-- <{value}>…"),
        (None, None) => {
            let many = argument.get_num_args().is_some_and(|number| number.max_values() > names.len());
            let names: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
            names.join(" ") + if many { "…" } else { "" }
        }
        (short, long) => {
            let names: Vec<String> = [short.map(|short| format!("-{short}")), long.map(|long| format!("--{long}"))]
                .into_iter()
                .flatten()
                .collect();
            names.join(", ") + &if takes { format!(" <{value}>") } else { String::new() }
        }
    }
}

fn meaning(argument: &Arg) -> String {
    let mut text = argument.get_help().or(argument.get_long_help()).map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && argument.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        text.push_str(&format!(": {}", values.join(", ")));
    }
    if let Some(variable) = argument.get_env() {
        text.push_str(&format!(" [env: {}]", variable.to_string_lossy()));
    }
    text
}

fn code(text: &str) -> String {
    format!("`{}`", cell(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_their_values_are_listed() {
        let mode =
            Arg::new("mode").short('m').long("mode").value_name("A|B").value_parser(["a", "b"]).help("which one");
        let rest = Arg::new("rest").last(true).value_name("ARG").help("the rest");
        let words = Arg::new("words").num_args(0..).value_names(["A", "B"]).help("first the words");
        let text = chapter(Command::new("c").version("1").about("does c").args([mode, words, rest]));
        assert!(text.starts_with("## c\n\ndoes c\n\n```text\nc [OPTIONS]"), "{text}");
        assert!(text.contains("| `-m, --mode <A\\|B>` | which one: `a`, `b` |"), "{text}");
        assert!(text.contains("| `<A> <B>…` | first the words |"), "{text}");
        assert!(text.contains("| `-- <ARG>…` | the rest |"), "{text}");
    }
}
