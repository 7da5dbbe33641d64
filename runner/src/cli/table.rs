//! Tables for people, readable from 40 to 200 columns and in a pipe.
//!
//! A table that is too wide for the terminal first cuts its longest cells; where that is not enough, each
//! row becomes a block of `name: value` lines. In a pipe nothing is cut.

use super::output::{Out, plain};

/// No column is cut below this.
const COLUMN_MIN: usize = 10;
/// Between two columns.
const GAP: usize = 2;

/// Rows under a header.
#[derive(Debug)]
pub(super) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(super) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; a cell for each column.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        let cells: Vec<String> = cells.into_iter().map(|c| plain(c.as_ref())).collect();
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    /// Writes the table, or `empty` to stderr when it has no row.
    pub(super) fn print(&self, out: &mut Out, empty: &str) {
        if self.rows.is_empty() {
            super::output::note(empty);
            return;
        }
        for line in self.lines(out.columns()) {
            out.line(&line);
        }
    }

    fn lines(&self, columns: Option<usize>) -> Vec<String> {
        let mut widths: Vec<usize> = self.header.iter().map(|h| h.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(width_of(cell));
            }
        }
        if let Some(columns) = columns
            && !fit(&mut widths, columns)
        {
            return self.blocks();
        }
        let header: Vec<String> = self.header.iter().map(|h| h.to_uppercase()).collect();
        std::iter::once(&header).chain(&self.rows).map(|cells| aligned(cells, &widths)).collect()
    }

    fn blocks(&self) -> Vec<String> {
        let name = self.header.iter().map(|h| h.len()).max().unwrap_or(0) + 1;
        let mut lines = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 {
                lines.push(String::new());
            }
            for (header, cell) in self.header.iter().zip(row) {
                lines.push(format!("{:name$} {cell}", format!("{header}:")).trim_end().to_owned());
            }
        }
        lines
    }
}

/// Cuts the widest columns until all fit into `columns`; false when they cannot.
fn fit(widths: &mut [usize], columns: usize) -> bool {
    let gaps = GAP * widths.len().saturating_sub(1);
    loop {
        let total: usize = widths.iter().sum::<usize>() + gaps;
        if total <= columns {
            return true;
        }
        let Some(widest) = widths.iter_mut().filter(|w| **w > COLUMN_MIN).max() else { return false };
        *widest -= (total - columns).min(*widest - COLUMN_MIN).min((*widest / 4).max(1));
    }
}

fn aligned(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let cell = cut(cell, *width);
        line.push_str(&cell);
        line.extend(std::iter::repeat_n(' ', width - width_of(&cell) + GAP));
    }
    line.truncate(line.trim_end().len());
    line
}

/// `text` in at most `width` columns, marked where it was cut.
fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        if width_of(&kept) + width_of(c.encode_utf8(&mut [0; 4])) + 2 > width {
            break;
        }
        kept.push(c);
    }
    kept + ".."
}

fn width_of(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["id", "state", "error"]);
        table.row(["1-abcde", "dead", &"a long message ".repeat(10)]);
        table.row(["order 7 界", "scheduled", ""]);
        table
    }

    #[test]
    fn in_a_pipe_nothing_is_cut() {
        let lines = table().lines(None);
        assert_eq!(lines[0], "ID          STATE      ERROR");
        assert!(lines[1].starts_with("1-abcde     dead       a long message"));
        assert!(lines[1].ends_with("a long message"));
        assert_eq!(lines[2], "order 7 界  scheduled");
    }

    #[test]
    fn a_terminal_is_never_overrun_from_40_to_200_columns() {
        for columns in 40..200 {
            for line in table().lines(Some(columns)) {
                assert!(width_of(&line) <= columns, "{columns}: {line}");
            }
        }
        let lines = table().lines(Some(40));
        assert!(lines[1].ends_with(".."), "{}", lines[1]);
        assert_eq!(lines[0].find("STATE"), lines[1].find("dead"), "aligned");
    }

    #[test]
    fn what_cannot_fit_becomes_blocks() {
        let lines = table().lines(Some(20));
        assert_eq!(lines[..2], ["id:    1-abcde", "state: dead"]);
        assert_eq!(lines[3], "");
    }

    #[test]
    fn a_cell_stays_on_its_line() {
        let mut table = Table::new(&["a"]);
        table.row(["x\ny\u{1b}[31m"]);
        assert_eq!(table.lines(None)[1], "x\\ny\\u{1b}[31m");
    }
}
