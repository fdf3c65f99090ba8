package rehearsal

import (
	"strings"
	"testing"
)

// A scratch database is next to the real one. Names of any length have one, each another.
func TestScratchDatabase(t *testing.T) {
	t.Parallel()
	if name := ScratchName("shop"); name != "shop_dbcrehearsal" {
		t.Error(name)
	}
	seen := map[string]bool{}
	for _, end := range []string{"", "x", "y", strings.Repeat("x", 13)} {
		name := ScratchName(strings.Repeat("x", 50) + end)
		if len(name) > 63 || !strings.HasSuffix(name, "_dbcrehearsal") || seen[name] {
			t.Errorf("the scratch database is %s", name)
		}
		seen[name] = true
	}
}
