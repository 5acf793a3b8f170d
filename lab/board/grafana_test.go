package board

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	grafana "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// TestBoard decodes the board strictly into the types of Grafana.
func TestBoard(t *testing.T) {
	types := cog.NewRuntime()
	types.RegisterDataqueryVariant(grafana.VariantConfig())
	types.RegisterPanelcfgVariant(stat.VariantConfig())
	types.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	types.RegisterPanelcfgVariant(timeseries.VariantConfig())
	text, err := os.ReadFile("../../contrib/grafana/board.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := strictly(text); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"drawStyle", "legendFormat", "reduceOptions", "mergeValues", "templating"} {
		if strictly([]byte(strings.Replace(string(text), strconv.Quote(word), `"unknown"`, 1))) == nil {
			t.Errorf("an unknown field in the place of %q is accepted", word)
		}
	}
	var board dashboard.Dashboard
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if err := board.Validate(); err != nil {
		t.Error(err)
	}
	if board.SchemaVersion < 39 {
		t.Errorf("the schema of the board is %d", board.SchemaVersion)
	}
	places(t, text)
}

// strictly returns what is wrong with a board.
func strictly(text []byte) error {
	err := new(dashboard.Dashboard).UnmarshalJSONStrict(text)
	if all := (cog.BuildErrors)(nil); errors.As(err, &all) && len(all) == 0 {
		return nil // the library returns an empty list
	}
	return err
}

// places fails the test if two panels have the same number or overlap, or if a panel does not use
// the data source that is chosen.
func places(t *testing.T, text []byte) {
	t.Helper()
	var board struct {
		Panels []struct {
			ID          uint32
			Type, Title string
			Description string
			Datasource  struct{ UID string }
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Datasource struct{ UID string } }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	ids, cells := map[uint32]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the number of another one", p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q covers %q, or is too wide", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" {
			t.Errorf("panel %q has no description", p.Title)
		}
		for _, target := range append(p.Targets, struct{ Datasource struct{ UID string } }{p.Datasource}) {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q uses the data source %q", p.Title, target.Datasource.UID)
			}
		}
	}
}
