package syncer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// shortNames is a database that takes names of at most 100 bytes, and in which nothing is made.
type shortNames struct{ record.Namespace }

func (shortNames) Describe(_ context.Context, kind record.KindSpec, name string) (record.Info, error) {
	if len(name) > 100 {
		return record.Info{}, &record.UnsupportedError{What: "collection " + name, Reason: "its name is too long"}
	}
	return record.Info{Exists: kind.Fixed}, nil
}

// TestLongNameIsRefusedBeforeAnythingIsMade: for its length, also where only the names that a kind is
// given on its way are too long; and not where the record has the kind already.
func TestLongNameIsRefusedBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	d := upgradestate.Deployment{CurrentVersion: "v1", Namespaces: []upgradestate.Namespace{{Version: "v1", Kinds: []upgradestate.Kind{{Kind: "old" + strings.Repeat("x", 90)}}}}}
	for name, want := range map[string]bool{"orders": true, strings.Repeat("x", 99): false, "old" + strings.Repeat("x", 90): true} {
		for _, fixed := range []bool{true, false} {
			err := Inspect(t.Context(), shortNames{}, d, "v1", []record.KindSpec{{Name: name, Fixed: fixed}})
			var refused *record.UnsupportedError
			if (err == nil) != want || err != nil && (!errors.As(err, &refused) || !strings.Contains(err.Error(), "too long") || !strings.Contains(err.Error(), "shorter name")) {
				t.Errorf("%d bytes, fixed %t: %v", len(name), fixed, err)
			}
		}
	}
}
