package cli

import (
	"fmt"
	"testing"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

func TestReplacedRow(t *testing.T) {
	t.Parallel()
	many := &dbv1.Replaced{Version: "v1", To: "v2", Copied: 1500, Total: 3000, ReportingShards: 16, ComparedShards: 3}
	for i := range 5 {
		many.Kinds = append(many.Kinds, &dbv1.ReplacedKind{Kind: fmt.Sprint("k", i)})
	}
	for want, r := range map[string]*dbv1.Replaced{
		"orders at 2026-11-27 08:00:00 UTC of v1; v2 is rebuilt: not begun": {
			Version: "v1", To: "v2", Kinds: []*dbv1.ReplacedKind{{Kind: "orders", At: "2026-11-27T08:00:00Z"}},
		},
		"orders of v2; v1 is rebuilt: 16 of 16 shards compared": {
			Version: "v2", To: "v1", ReportingShards: 16, ComparedShards: 16, Kinds: []*dbv1.ReplacedKind{{Kind: "orders"}},
		},
		"k4, k3, k2 and 2 more of v1; v2 is rebuilt: 1,500 of 3,000 copied (50 %), 3 of 16 shards compared": many,
	} {
		d := &dbv1.Deployment{Name: "a", CurrentVersion: "v1", RingSize: 16, Replaced: r}
		found := ""
		for _, l := range summary(d) {
			if l.label == "replaced" {
				found = l.text
			}
		}
		if found != want {
			t.Errorf("the row is %q, want %q", found, want)
		}
	}
}
