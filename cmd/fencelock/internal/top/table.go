//go:build unix

package top

import "github.com/clipperhouse/displaywidth"

// table is the position in a list that is longer than its place.
type table struct {
	cursor, first, height int
	widths                []int // of columns; they do not shrink, so that columns do not jump
}

// move moves the cursor by some of n rows.
func (l *table) move(by, n int) { l.cursor = max(0, min(l.cursor+by, n-1)) }

// column is a column of a table with rows of one type.
type column[T any] struct {
	head  string
	cell  func(T) string
	right bool         // aligned to the right
	from  int          // the width of the screen from which the column is shown
	least int          // the width to which it may be narrowed; 0 is what it needs
	alarm func(T) bool // whether a cell is to be noticed; may be nil
}

// layOut returns the columns that are shown on a screen of some width, the cells of rows, and the
// widths of columns. Of columns that need too much, it narrows the widest first.
func layOut[T any](l *table, all []column[T], rows []T, width int) (columns []column[T], cells [][]string, widths []int) {
	sum := 0
	for _, c := range all {
		if width < c.from {
			continue
		}
		j := len(columns)
		columns, cells = append(columns, c), append(cells, make([]string, len(rows)))
		if len(l.widths) == j {
			l.widths = append(l.widths, c.least)
		}
		l.widths[j] = max(l.widths[j], displaywidth.String(c.head))
		for i, r := range rows {
			cells[j][i] = c.cell(r)
			l.widths[j] = max(l.widths[j], displaywidth.String(cells[j][i]))
		}
		widths = append(widths, l.widths[j])
		sum += 1 + widths[j]
	}
	for ; sum > width; sum-- {
		widest := -1
		for j, c := range columns {
			if c.least > 0 && widths[j] > c.least && (widest < 0 || widths[j] > widths[widest]) {
				widest = j
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return columns, cells, widths
}

// drawTable draws a head and as many rows as fit between two lines of the screen.
func drawTable[T any](t *top, l *table, all []column[T], rows []T, from, to int, active bool) {
	width, _ := t.screen.Size()
	l.height = max(to-from-1, 0)
	l.first = max(0, min(l.first, l.cursor, len(rows)-l.height), l.cursor-l.height+1)
	rows = rows[min(l.first, len(rows)):min(l.first+l.height, len(rows))]
	columns, cells, widths := layOut(l, all, rows, width)
	style := t.styles()
	t.fill(from, style.head)
	cursor := l.cursor - l.first
	if cursor < len(rows) {
		t.fill(from+1+cursor, style.plain.Reverse(active))
		t.put(0, from+1+cursor, 1, "▸", style.plain.Reverse(active), false)
	}
	x := 1
	for j, c := range columns {
		t.put(x, from, widths[j], c.head, style.head, c.right)
		for i, r := range rows {
			look, selected := style.plain, active && i == cursor
			switch {
			case t.stale() && !selected:
				look = style.pale
			case c.alarm != nil && c.alarm(r) && !t.stale():
				look = style.alarm
			}
			t.put(x, from+1+i, widths[j], cells[j][i], look.Reverse(selected), c.right)
		}
		x += 1 + widths[j]
	}
}
