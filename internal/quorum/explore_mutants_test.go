package quorum_test

import (
	"slices"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// hunts are the bounds within which mutants are found. They need not be exhausted.
var hunts = map[string]explore.Bounds{
	"plain":     {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Late: 1},
	"again":     {Clients: 2, Acquires: 2, Units: 3, Late: 2},
	"rates":     {Clients: 2, Acquires: 1, Units: 4, Late: 1, Rates: explore.Drift},
	"delays":    {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Late: 2, Delays: 1},
	"time-outs": {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Late: 2, Timeouts: 2},
}

// TestExploreHunt explores the bounds that a mutant names.
func TestExploreHunt(t *testing.T) { explore.HuntWithin(t, hunts, modelOf) }

// TestExploreMutants changes the decisions and the hold.
func TestExploreMutants(t *testing.T) {
	explore.Hunt(t, slices.Concat(explore.HoldMutants("../.."), []explore.Mutant{
		explore.Change("one node grants", "take.go", "plain", "case granted < need:\n\t\treturn Orders{}", "case granted < need-1:\n\t\treturn Orders{}", "case same >= need && ", "case same >= need-1 && ", "granted+open < need", "granted+open < need-1"),
		explore.Change("there is no second round", "take.go", "again", "\tt.state = Raising\n\treturn t.raise(t.granted())", "\tt.state = Won\n\treturn Orders{}"),
		explore.Change("the proposal is the token", "take.go", "again", "if b.Token == t.proposed {", "if true {"),
		explore.Change("one node keeps a lock", "renewal.go", "delays", "case kept >= need && r.late(now):", "case kept >= 1 && r.late(now):", "case kept >= need:", "case kept >= 1:"),
	}))
}
