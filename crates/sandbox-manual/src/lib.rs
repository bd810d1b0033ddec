//! Man pages, the reference and the tables in documents, from the definitions of flags, variables, limits and languages.

#[cfg(test)]
mod definition_keys;
mod generated;
mod page;
mod reference;
#[cfg(test)]
mod tables;

use clap::Command;

pub use generated::{code_list, hold, table, write};
pub use page::{page, pages};
pub use reference::chapter;

/// The text after a command's help, as sections: a heading is a separate line that ends in a colon. Text without a
/// heading has an empty one.
fn sections(command: &Command) -> Vec<(String, String)> {
    let text = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let mut sections: Vec<(String, String)> = vec![];
    for block in text.split("\n\n").map(|block| block.trim_matches('\n')).filter(|block| !block.is_empty()) {
        let (first, rest) = block.split_once('\n').unwrap_or((block, ""));
        match first.strip_suffix(':').filter(|heading| !heading.starts_with(' ') && !rest.is_empty()) {
            Some(heading) => sections.push((heading.to_owned(), rest.to_owned())),
            None => sections.push((String::new(), block.to_owned())),
        }
    }
    sections
}

/// The visible subcommands of a command.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_after_the_help_is_split_into_sections() {
        let command = Command::new("c").after_help("Examples:\n  c a\n  c b\n\nSizes are bytes.\nOr so.");
        let expected = [("Examples", "  c a\n  c b"), ("", "Sizes are bytes.\nOr so.")];
        assert_eq!(sections(&command), expected.map(|(heading, text)| (heading.to_owned(), text.to_owned())));
        assert_eq!(sections(&Command::new("c")), []);
    }
}
