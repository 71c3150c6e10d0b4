//! `docs/cli.md`: every command with its help, as the program prints it.

use clap::{Command, CommandFactory as _};

const HEAD: &str = "\
# The command line

<!-- Written from src/cli.rs: `WAYPOST_BLESS=1 cargo test --lib cli` writes it anew. -->

Every command, as `waypost help COMMAND` shows it. Answers go to standard output, all else to standard error; nothing is
coloured, and tables are cut to the width of a terminal only where one reads them.
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut program = super::Cli::command().term_width(WIDTH);
    program.build();
    let mut out = HEAD.to_owned();
    section(&mut program, &mut out);
    out
}

/// Columns of the help.
const WIDTH: usize = 100;

/// A command, then those below it.
fn section(command: &mut Command, out: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    out.push_str(&format!("\n## `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    let shown = |command: &&mut Command| !command.is_hide_set() && command.get_name() != "help";
    for below in command.get_subcommands_mut().filter(shown) {
        section(below, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_what_the_program_says() {
        let page = page();
        if std::env::var_os("WAYPOST_BLESS").is_some() {
            std::fs::write("docs/cli.md", &page).unwrap();
        }
        let kept = std::fs::read_to_string("docs/cli.md").unwrap_or_default();
        assert!(kept == page, "docs/cli.md is not what came out (WAYPOST_BLESS=1 keeps it):\n{page}");
    }

    #[test]
    fn the_command_line_is_sound() {
        crate::cli::Cli::command().debug_assert();
    }
}
