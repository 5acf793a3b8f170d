package pglock

import (
	"embed"
	"strconv"
	"strings"
)

// The classes of the engine's own advisory locks: the first of their two integers. The
// locks of names are of the other kind, of one bigint.
const (
	classSchema  = 1717923427 // who changes the schema; of a transaction
	classGate    = 1717923428 // who counts the shared holders of a key; of a transaction
	classSession = 1717923430 // with a session's id: the session is connected
	classTicket  = 1717923434 // with a ticket's low bits: the request waits
)

// schemaVersion is the version of the schema that this engine needs.
const schemaVersion = 2

//go:embed sql/*.sql
var sqlFiles embed.FS

// numbers writes the classes, and the version, where SQL names them.
var numbers = strings.NewReplacer("{schema}", strconv.Itoa(classSchema), "{gate}", strconv.Itoa(classGate),
	"{session}", strconv.Itoa(classSession), "{ticket}", strconv.Itoa(classTicket), "{version}", strconv.Itoa(schemaVersion))

// schema returns the SQL of the schema.
func schema() string {
	var all strings.Builder
	for _, name := range []string{"tables", "session", "lock", "wait", "record", "rate"} {
		all.WriteString(numbers.Replace(sqlText(name)))
		all.WriteByte('\n')
	}
	return all.String()
}

// sqlText returns the text of a file of package sql.
func sqlText(name string) string {
	b, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}
