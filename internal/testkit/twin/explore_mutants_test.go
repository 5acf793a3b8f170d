package twin

import (
	"slices"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// hunts are the bounds within which mutants are found. They need not be exhausted.
var hunts = map[string]explore.Bounds{
	"plain":     {Clients: 2, Acquires: 1, Renews: 1, Units: 5},
	"again":     {Clients: 2, Acquires: 2, Renews: 1, Units: 4, Delays: 1},
	"rates":     {Clients: 2, Acquires: 1, Units: 4, Rates: explore.Drift},
	"delays":    {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Delays: 2},
	"time-outs": {Clients: 2, Acquires: 2, Renews: 1, Units: 5, Delays: 1, Timeouts: 2},
	"copies":    {Clients: 2, Acquires: 1, Renews: 1, Units: 4, Timeouts: 1, Copies: 1, Late: 2},
	"crash":     {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Crashes: 1, Fair: 2},
}

// TestExploreHunt explores the bounds that a mutant names.
func TestExploreHunt(t *testing.T) { explore.HuntWithin(t, hunts, modelOf) }

// TestExploreMutants changes the rules of the scripts and the hold.
func TestExploreMutants(t *testing.T) {
	explore.Hunt(t, slices.Concat(explore.HoldMutants("../../.."), []explore.Mutant{
		explore.Change("a token does not grow", "rules.go", "plain", "token := max(n.Now, number(last)+1)", "token := max(number(last), 1)"),
		explore.Change("anybody ends a holder", "rules.go", "again", `if !strings.HasPrefix(n.text, fmt.Sprintf("%s%s %d ", format, owner, token)) {`, "if false {"),
		explore.Change("anybody renews a holder", "rules.go", "again", `case n.mode == "x" && strings.HasPrefix(n.text, fmt.Sprintf("%s%s %d ", format, owner, token)):`, `case n.mode == "x":`),
		explore.Change("a holder is anybody's", "rules.go", "plain", `rest, own := strings.CutPrefix(n.text, format+owner+" ")`, "rest, own := strings.CutPrefix(n.text, format)\n\t_, rest, _ = strings.Cut(rest, \" \")"),
		explore.Change("the lock ends after half a lease", "rules.go", "plain", "n.Put(Lock, n.text, ttl)", "n.Put(Lock, n.text, ttl/2)"),
		explore.Change("the lock of a dead holder stays", "rules.go", "crash", "n.Put(Lock, n.text, ttl)", "n.Put(Lock, n.text, 100*ttl)"),
		explore.Change("a renewal gives a quarter of a lease", "rules.go", "plain", "n.end(Lock, n.ms()+ttl)\n\t\treturn true\n\tcase n.mode == \"s\"", "n.end(Lock, n.ms()+ttl/4)\n\t\treturn true\n\tcase n.mode == \"s\""),
		explore.Change("keys end a hand-over early", "state.go", "plain", "k.Until > 0 && k.Until <= n.ms()", "k.Until > 0 && k.Until <= n.ms()+2000"),
		explore.Change("a late request is served", "scripts.go", "time-outs", "if q.Until < n.Now {\n\t\treturn late", "if false {\n\t\treturn late"),
		explore.Change("a late touch is served", "scripts.go", "time-outs", "if until < n.Now {\n\t\treturn fmt.Sprintf(\"late %d\", n.Now)\n\t}\n\tn.speaks", "n.speaks"),
		explore.Change("a held name counts as untouched", "scripts.go", "plain", "return !n.there(Lock) && !n.there(Queue)", "return !n.there(Queue)"),
		explore.Change("a lease that is over is renewed", "scripts.go", "time-outs", "if n.mode != \"x\" || !n.extend(owner, token, ttl) {\n\t\treturn \"gone\"", "if n.mode == \"free\" {\n\t\tn.Put(Lock, fmt.Sprintf(\"%s%s %d cl0 x 0 1 %d 0 1 h -\", format, owner, token, ttl), ttl)\n\t} else if n.mode != \"x\" || !n.extend(owner, token, ttl) {\n\t\treturn \"gone\""),
		explore.Change("a renewal always succeeds", "scripts.go", "delays", "return \"gone\"\n\t}\n\treturn \"ok\" + left", "return \"ok\"\n\t}\n\treturn \"ok\" + left"),
		explore.Change("a release leaves no mark", "scripts.go", "copies", "	if had || late > 0 {\n\t\tn.mark(", "	if late > 0 {\n\t\tn.mark("),
		explore.Change("who leaves leaves no mark", "scripts.go", "copies", "\tn.mark(q.Owner, \"\", late)\n", ""),
	}))
}
