package vectors

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
)

var update = flag.Bool("update", false, "write the answers into docs/vectors again")

const folder = "../../docs/vectors"

// step is a line of a file of vectors; see docs/vectors.md. A case begins with a line that has its
// name, and has the lines up to the next one.
type step struct {
	Case      string            `json:"case,omitempty"`
	Session   string            `json:"session,omitempty"`
	Statement string            `json:"sql,omitempty"`
	Script    string            `json:"script,omitempty"`
	Keys      []string          `json:"keys,omitempty"`
	Args      []string          `json:"args,omitempty"`
	Command   []string          `json:"command,omitempty"`
	Repeat    bool              `json:"repeat,omitempty"`
	Subscribe string            `json:"subscribe,omitempty"`
	Op        string            `json:"op,omitempty"`
	Answer    *string           `json:"answer,omitempty"`
	Written   []json.RawMessage `json:"written,omitempty"`
	Message   string            `json:"message,omitempty"`
	On        string            `json:"on,omitempty"`
}

// world is where a case is replayed: a server without any state.
type world interface {
	// fill returns the value of a placeholder that nothing has bound, if it has one.
	fill(t testing.TB, name string) (string, bool)
	// do does a step and returns what was answered, and what each word of the answer is.
	do(t testing.TB, b *book, s step) (answer, shape string)
	// separator is between the words of an answer.
	separator() string
}

// book has the values of the placeholders of a case.
type book struct {
	name   string // of the case
	t      testing.TB
	w      world
	values map[string]string // of each placeholder
	names  map[string]string // the placeholder of each value
	last   map[string]int    // the number of the last placeholder of a kind
}

func (b *book) bind(name, value string) { b.values[name], b.names[value] = value, name }

var placeholder = regexp.MustCompile(`\$[a-z]+[0-9]*`)

// fill replaces the placeholders in a text by their values.
func (b *book) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := b.values[name]; ok {
			return value
		}
		if value, ok := b.w.fill(b.t, name); ok {
			return value
		}
		switch strings.TrimRight(name, "0123456789") {
		case "$owner", "$client", "$id", "$host", "$name":
			b.bind(name, uuid.NewString())
		case "$pid":
			b.bind(name, strconv.Itoa(os.Getpid()))
		default:
			b.t.Fatalf("%s: nothing has bound %s in %q", b.name, name, text)
		}
		return b.values[name]
	})
}

func (b *book) fillAll(texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, b.fill(text))
	}
	return all
}

// mask replaces what varies in an answer by placeholders. want is the recorded answer.
func (b *book) mask(answer, shape, want string) string {
	sep := b.w.separator()
	words, kinds, wants := strings.Split(answer, sep), strings.Fields(shape), strings.Split(want, sep)
	for i, word := range words {
		kind := "word"
		if i < len(kinds) {
			kind = kinds[i]
		}
		name, bound := b.names[word]
		if version, try, ok := strings.Cut(word, "."); ok && b.names[version] != "" {
			name, bound = b.names[version]+"."+try, true
		}
		if i > 1 && words[i-2] == "fencelock:2" {
			kind = "token"
		}
		switch {
		case kind == "time":
			if len(word) != len("1700000000000000") {
				b.t.Errorf("%q is no time in microseconds", word)
			}
			words[i] = "$time"
		case kind == "ms":
			words[i] = duration(word, append(wants, make([]string, len(words))...)[i])
		case kind == "literal":
		case bound:
			words[i] = name
		case kind != "word" && word != "0":
			words[i] = b.issue(kind, word)
		}
	}
	return strings.Join(words, sep)
}

// issue returns the placeholder of a kind that has a value, or binds the next one. The numbers of a kind increase in a case.
func (b *book) issue(kind, word string) string {
	for n := range b.last[kind] {
		if name := fmt.Sprintf("$%s%d", kind, n+1); b.values[name] == word {
			return name
		}
	}
	last, n := b.values[fmt.Sprintf("$%s%d", kind, b.last[kind])], b.last[kind]+1
	if kind == "backend" || kind == "owner" || kind == "client" {
		last = ""
	}
	if len(word) < len(last) || len(word) == len(last) && word <= last {
		b.t.Errorf("the %s %s is not greater than the one before, %s", kind, word, last)
	}
	b.last[kind] = n
	name := fmt.Sprintf("$%s%d", kind, n)
	b.values[name] = word
	if kind == "token" || kind == "version" {
		b.names[word] = name // others are so small that other words may be equal
	}
	return name
}

// duration is the placeholder of a number of milliseconds that passes, by the recorded one if that is true.
func duration(word, want string) string {
	ms, err := strconv.Atoi(word)
	if err != nil || ms <= 0 {
		return word
	}
	if text, ok := strings.CutPrefix(want, "$ms<="); ok {
		if most, err := strconv.Atoi(text); err == nil && ms <= most {
			return want
		}
	}
	for _, most := range []int{500, 2000, 30000, 60000} {
		if ms <= most {
			return "$ms<=" + strconv.Itoa(most)
		}
	}
	return word
}

func nothing(context.Context) error { return nil }

// readSteps reads a file of vectors.
func readSteps(t *testing.T, file string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var s step
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			t.Fatalf("%s:%d: %v", file, i+1, err)
		}
		steps = append(steps, s)
	}
	return steps
}

// replay does all cases of a file and compares the answers with the recorded ones. A case that differs is
// done again, up to five times: a slow machine may have let a lease of two seconds end.
func replay(t *testing.T, file string, fresh func(t testing.TB) world) {
	t.Helper()
	steps := readSteps(t, file)
	var now bytes.Buffer
	for len(steps) > 0 {
		end := 1
		for end < len(steps) && steps[end].Case == "" {
			end++
		}
		var done []step
		var faults []string
		for range 5 {
			if done, faults = replayCase(t, steps[:end], fresh); len(faults) == 0 || *update {
				break
			}
		}
		for _, fault := range faults {
			if !*update {
				t.Errorf("%s: %s: %s", file, steps[0].Case, fault)
			}
		}
		for _, s := range done {
			now.Write(encode(t, s))
		}
		steps = steps[end:]
	}
	path := filepath.Join(folder, file)
	if *update {
		if err := os.WriteFile(path, now.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text, _ := os.ReadFile(path); !t.Failed() && !bytes.Equal(text, now.Bytes()) {
		t.Errorf("%s is not what the recorder writes: go test ./internal/vectors -update", file)
	}
}

// encode returns the line of a step.
func encode(t *testing.T, s step) []byte {
	t.Helper()
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return line.Bytes()
}

// replayCase does one case, and returns it with the answers of now, and what differs.
func replayCase(t *testing.T, steps []step, fresh func(t testing.TB) world) (done []step, faults []string) {
	t.Helper()
	b := &book{name: steps[0].Case, t: t, w: fresh(t), values: map[string]string{}, names: map[string]string{}, last: map[string]int{}}
	for _, s := range steps {
		want := ""
		if s.Answer != nil {
			want = *s.Answer
			for _, record := range s.Written {
				want += "\n" + string(record)
			}
		} else if s.Message != "" {
			want = s.Message
		}
		answer, shape := b.w.do(t, b, s)
		answer = b.mask(answer, shape, want)
		if answer != want {
			faults = append(faults, fmt.Sprintf("%s%s%s %q: answer %q, recorded %q", s.Script, s.Statement, s.Command, s.Args, answer, want))
		}
		switch {
		case s.On != "":
			s.Message = answer
		case s.Script != "" || s.Command != nil || s.Statement != "" || s.Op != "":
			first, records, _ := strings.Cut(answer, "\n")
			s.Answer, s.Written = &first, nil
			for record := range strings.FieldsFuncSeq(records, func(r rune) bool { return s.Op != "" && r == '\n' }) {
				s.Written = append(s.Written, json.RawMessage(record))
			}
		}
		done = append(done, s)
	}
	return done, faults
}
