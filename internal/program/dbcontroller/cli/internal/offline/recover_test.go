package offline

import (
	"encoding/json"
	"strings"
	"testing"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestMarksForgeNoRow: whoever can write to the databases chose what 'recover' reports.
func TestMarksForgeNoRow(t *testing.T) {
	t.Parallel()
	d := upgradestate.New("services/a/deployments/b", "v1", 4)
	d.Namespaces = []upgradestate.Namespace{{Version: "v1"}}
	state, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	e := identity.Evidence{Deployment: d.Name, Found: map[string]identity.Found{"v1": {
		Mark:   identity.Mark{Epoch: 1, Current: true, State: string(state), Next: &identity.Next{ID: "b-1\nFORGED row", Epoch: 1, To: "v1"}},
		Claims: []record.Claim{{Kind: "a\nFORGED row", ID: "c"}},
	}}}
	p := &process.Process{Config: config.Config{DBs: []config.DB{{Version: "v1", Endpoint: config.NewSecret("mongodb://127.0.0.1:1")}}}}
	var said strings.Builder
	if _, err := (&recovery{}).rebuild(t.Context(), e, p, nil, &said); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(said.String(), "\nFORGED") || !strings.Contains(said.String(), `kind a\nFORGED row of v1 was never used`) {
		t.Errorf("recover prints %q", &said)
	}
}
