//! What people most often get wrong about a command: there is no shell that splits it, or fills anything in.
//!
//! Must not know: how a program is started.

use std::path::Path;

use crate::config::effective;
use crate::config::mask;
use crate::config::reader::Text;
use crate::config::section::Section;
use crate::config::source::Finding;

/// Reports a command line in place of a program, and variables without braces.
pub(crate) fn check(section: &Section<'_>, command: &Text, args: &[Text], cwd: Option<&Path>) {
    section.reader.check_bare(command, "`command`");
    if !is_shell(&command.value) {
        args.iter().for_each(|arg| section.reader.check_bare(arg, "an item of `args`"));
    }
    if command.value.contains([' ', '\t']) && !is_file(&command.value, cwd) {
        report_line(section, command, args, cwd);
    }
}

/// A shell fills in variables by itself.
fn is_shell(command: &str) -> bool {
    let name = Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "fish" | "busybox")
}

fn is_file(command: &str, cwd: Option<&Path>) -> bool {
    command.contains('/') && cwd.unwrap_or(Path::new("")).join(command).is_file()
}

fn report_line(section: &Section<'_>, command: &Text, args: &[Text], cwd: Option<&Path>) {
    // A path with blanks may be right, and its program on another machine; the name of a program never has any.
    let program = command.value.split_whitespace().next().unwrap_or_default();
    let may_be_right = program.contains('/') && !is_file(program, cwd);
    let message = "`command` is one program: no shell splits it into words";
    let finding = if may_be_right { Finding::warning(message) } else { Finding::error(message) };
    let finding = finding.at(command.span);
    let mut words = command.written.split_whitespace();
    let (Some(program), Some(first)) = (words.next(), words.next()) else {
        // Its blanks come from a variable, which is not shown.
        section.report(finding.help("put the program in `command`, and its arguments in `args`"));
        return;
    };
    let words = std::iter::once(first).chain(words);
    let words = words.map(|word| word.trim_matches(['"', '\'']));
    let all: Vec<String> = mask::args(words.chain(args.iter().map(|arg| arg.written.as_str()))).collect();
    let all = effective::list(all.iter().map(String::as_str));
    let program = effective::scalar(program);
    let finding = finding.help(format!("did you mean `command: {program}`, `args: {all}`?"));
    section.report(if may_be_right {
        finding.help("if the blanks are part of its path: there is no such file here")
    } else {
        finding
    });
}
