//! Rows in columns that are lined up, cut to the width of the terminal.
//!
//! Must not know: what the rows are about.

/// The least width that is left to the last column.
const LEAST: usize = 20;

/// Lines up rows under their heads. The last column is cut to fit `width`, if there is one; no other is.
pub(super) fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]], width: Option<usize>) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| line(cell))).collect();
    let mut widths = heads.map(|head| head.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let before: usize = widths.iter().rev().skip(1).map(|width| width + GAP.len()).sum();
    let rest = width.map(|width| width.saturating_sub(before).max(LEAST));
    let heads = heads.map(str::to_owned);
    std::iter::once(&heads).chain(&rows).map(|row| written(row, &widths, rest)).collect()
}

const GAP: &str = "  ";

fn written(row: &[String], widths: &[usize], rest: Option<usize>) -> String {
    let mut out = String::new();
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        let is_last = at + 1 == row.len();
        match (is_last, rest) {
            (false, _) => out.push_str(&format!("{cell:width$}{GAP}")),
            (true, Some(rest)) => out.push_str(&cut(cell, rest)),
            (true, None) => out.push_str(cell),
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The first line of a text, without what a terminal would take for commands.
pub(super) fn line(text: &str) -> String {
    let first = text.trim().lines().next().unwrap_or_default();
    first.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A text of several lines, without what a terminal would take for commands.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[String; 2]> {
        [("a", "first\nsecond"), ("long_name", "ü\u{1b}[31mred"), ("b", "")]
            .map(|(name, about)| [name.to_owned(), about.to_owned()])
            .to_vec()
    }

    #[test]
    fn columns_are_lined_up_and_hold_no_commands_for_a_terminal() {
        let wanted = "NAME       ABOUT\na          first\nlong_name  ü [31mred\nb\n";
        assert_eq!(table(["NAME", "ABOUT"], &rows(), None), wanted);
        assert_eq!(table(["NAME", "ABOUT"], &[], None), "NAME  ABOUT\n");
    }

    #[test]
    fn only_the_last_column_is_cut_and_never_to_nothing() {
        let rows = [["name".to_owned(), "x".repeat(50)]];
        let cut = |width| table(["N", "A"], &rows, Some(width));
        assert_eq!(cut(36), format!("N     A\nname  {}…\n", "x".repeat(29)));
        assert_eq!(cut(3), format!("N     A\nname  {}…\n", "x".repeat(19)));
        assert_eq!(cut(80), format!("N     A\nname  {}\n", "x".repeat(50)));
    }
}
