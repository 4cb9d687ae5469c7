//! Tables and numbers for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// An empty table with these columns. Those after the first that are named in `numbers` are aligned
/// to the right.
pub(crate) fn table(columns: &[&str], numbers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(columns.to_vec());
    for (at, name) in columns.iter().enumerate() {
        if numbers.contains(name)
            && let Some(column) = table.column_mut(at)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// `13.4 MiB`, as people read sizes.
pub(crate) fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
