package dashboard

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	style string
	//go:embed page.js
	script string
)

// policy lets the page load nothing but its own style and script, and talk to its own server only.
var policy = "default-src 'none'; style-src '" + hash(style) + "'; script-src '" + hash(script) + "'; " +
	"connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// hash returns the source expression of an inline style or script.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// raw is text that is HTML already.
type raw string

// sheet writes HTML.
type sheet struct{ w *bufio.Writer }

// add formats like fmt.Fprintf, and escapes every string that is not raw.
func (s sheet) add(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = html.EscapeString(plain(text))
		}
	}
	fmt.Fprintf(s.w, format, args...)
}

// plain shows characters that cannot be seen as escapes. Some of them would change the order of the
// text around them.
func plain(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// page writes the page. Its table is for browsers without JavaScript; the script replaces it.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	h.hub.look()
	u := h.hub.view(q, &sent{})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if r.Method == http.MethodHead {
		return
	}
	s := sheet{bufio.NewWriter(w)}
	mode := "read"
	if h.cfg.MayBreak != nil {
		mode = "break"
	}
	s.add(pageHTML, raw(style), mode, h.hub.locks.EngineName(), h.cfg.Prefix, r.URL.Query().Get("filter"))
	s.add("<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n")
	s.tiles(u)
	s.table(u)
	s.add("</main>\n<script type=\"module\">%s</script>\n</body>\n</html>\n", raw(script))
	_ = s.w.Flush() // the reader is gone
}

// tiles writes the sums.
func (s sheet) tiles(u update) {
	s.add("<dl id=\"tiles\">\n")
	for _, t := range []struct {
		id, what string
		value    any
	}{
		{"held", "locks held", u.Held},
		{"waiting", "requests waiting", u.Waiting},
		{"longest", "longest wait", span(u.LongestWait)},
		{"oldest", "oldest hold", span(u.Oldest)},
		{"lost", "lost while watched", u.Lost},
		{"names", "names in use", u.Names},
	} {
		s.add("<div id=\"%s\"><dt>%s</dt><dd>%v</dd></div>\n", t.id, t.what, t.value)
	}
	s.add("</dl>\n<p id=\"trouble\" role=\"alert\">%s</p>\n<div id=\"live\"></div>\n", u.Error)
}

// table writes the rows.
func (s sheet) table(u update) {
	s.add("<table id=\"locks\"><thead><tr><th>name<th>held by<th class=\"n\">for<th>lease<th>last 5 minutes<th>queue<th></tr></thead>\n<tbody>\n")
	for _, r := range u.rows {
		s.add("<tr><th scope=\"row\">%s<td>", r.Name)
		for _, x := range r.Holders {
			s.add("<div>%s <small>%s</small></div>", process(x.Host, x.PID), x.Note)
		}
		if len(r.Holders) == 0 {
			s.add("<small>free</small>")
		}
		ages, leases := "", ""
		for _, x := range r.Holders {
			ages += "<div>" + between(x.Since, u.Now) + "</div>"
			leases += "<div>" + between(u.Now, x.Ends) + "</div>"
		}
		s.add("<td class=\"n\">%s<td class=\"lease\">%s<td><td>", raw(ages), raw(leases))
		for _, x := range r.Waiters {
			s.add("<span class=\"chip\">%d %s %s</span> ", x.Position, process(x.Host, x.PID), between(x.Since, u.Now))
		}
		if more := r.Waiting - len(r.Waiters); more > 0 {
			s.add("<span class=\"chip more\">+%d</span>", more)
		}
		s.add("<td>%s</tr>\n", r.Trouble)
	}
	s.add("</tbody></table>\n<p id=\"foot\">")
	if u.Matching == 0 {
		s.add("No lock is held or waited for. ")
	} else if u.Matching > len(u.rows) {
		s.add("%d of %d names are shown; use the filter for others. ", len(u.rows), u.Matching)
	}
	s.add("</p>\n")
}

// process returns where a holder or a waiter runs.
func process(host string, pid int) string {
	return strings.TrimSuffix(fmt.Sprint(cmp.Or(host, "unknown"), " ", pid), " 0")
}

// between returns the time between two, "-" if one of them is unknown.
func between(from, to int64) string {
	if from == 0 || to == 0 {
		return "-"
	}
	return span(max(0, to-from))
}

// span returns a duration of milliseconds for people.
func span(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Truncate(100 * time.Millisecond).String()
}
