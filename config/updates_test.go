package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/config"
)

func TestUpdates(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("/etc/dbc/bbs.yaml", []byte(whole+`updates:
- {name: fill-region, kind: packages, version: v1, lens: lenses/fill.yaml, description: region of each package}
- {name: other, kind: packages, version: v2, lens: /abs/fill.yaml, references: both}
- {name: back, kind: packages, version: v2, lens: /abs/fill.yaml, references: old, follow: true}
`), env)
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Update{
		{Name: "fill-region", Kind: "packages", Version: "v1", Lens: "/etc/dbc/lenses/fill.yaml", Description: "region of each package"},
		{Name: "other", Kind: "packages", Version: "v2", Lens: "/abs/fill.yaml", References: "both"},
		{Name: "back", Kind: "packages", Version: "v2", Lens: "/abs/fill.yaml", References: "old", Follow: true},
	}
	if diff := cmp.Diff(want, c.Updates); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUpdateRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"- {kind: packages, version: v1, lens: fill.yaml}", "bbs.yaml:19: updates[0].name: missing, want a name for operators"},
		{"- {name: a, kind: packages, version: v7, lens: fill.yaml}", `bbs.yaml:19: updates[0].version: "v7": want one of v1, v2`},
		{"- {name: a, kind: packages, version: v1}", "bbs.yaml:19: updates[0].lens: missing, want the path of a lens file"},
		{"- {name: a, kind: packages, version: v1, lens: f.yaml}\n- {name: a, kind: packages, version: v2, lens: f.yaml}",
			`bbs.yaml:20: updates[1].name: "a": updates[0] in line 19 has it already, want each name once`},
		{"- {name: a, kind: packages, version: v1, lens: f.yaml, references: both, follow: true}", "bbs.yaml:19: updates[0].follow: want references: new or old: only such an update can follow a switch by itself"},
		{"- {name: a, kind: packages, version: v1, lens: f.yaml, follow: true}", "bbs.yaml:19: updates[0].follow: want references: new or old: only such an update can follow a switch by itself"},
		{"- {name: a, kind: packages, version: v1, lens: f.yaml, references: newest}", `bbs.yaml:19: updates[0].references: "newest": want one of new, old, both`},
	} {
		_, err := config.Parse("bbs.yaml", []byte(whole+"updates:\n"+tc.text+"\n"), env)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}
