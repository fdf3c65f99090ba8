package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	us "dbcontroller.dev/upgradestate"
)

// resharded is a database in which one collection was resharded by another key.
type resharded struct {
	record.Namespace
	name string
	away error
}

func (r resharded) Describe(_ context.Context, _ record.KindSpec, name string) (record.Info, error) {
	if name == r.name {
		return record.Info{}, &record.UnsupportedError{What: "collection " + name, Reason: "it is sharded by n"}
	}
	return record.Info{}, r.away
}

// TestReshardedByAnotherKeyIsRefused: by another key than _id, a collection can have two records of one
// name. Its adoption waits for a person, under each name that the collection may have.
func TestReshardedByAnotherKeyIsRefused(t *testing.T) {
	t.Parallel()
	d := us.New("services/a/deployments/b", "v1", 1)
	d.Namespaces = []us.Namespace{{Version: "v1", Kinds: []us.Kind{{Kind: "things", Physical: "things.n1", Pending: &us.Pending{To: "things.n2"}}}}}
	anew := []us.Adopted{{Version: "v1", Kind: "things", Was: "1", Is: "2"}}
	for _, name := range []string{"things.n1", "things.n2"} {
		err := supported(t.Context(), d, "v1", resharded{name: name}, anew)
		var unproven *identity.UnprovenError
		if !errors.As(err, &unproven) || !strings.Contains(err.Error(), "it is sharded by n") {
			t.Errorf("%s: %v", name, err)
		}
		waits, err := notAccepted([]string{"v1"}, err)
		if err != nil || len(waits) != 1 || !waits[0].Place.Equal(us.BlockPlace{Version: "v1", Kind: "things"}) || !strings.Contains(waits[0].Text, "recover") {
			t.Errorf("%s: waits for %+v, %v", name, waits, err)
		}
	}
	if err := supported(t.Context(), d, "v1", resharded{}, anew); err != nil {
		t.Errorf("sharded by _id: %v", err)
	}
	// An outage is tried again.
	err := supported(t.Context(), d, "v1", resharded{away: record.ErrUnavailable}, anew)
	if waits, again := notAccepted([]string{"v1"}, err); !errors.Is(again, record.ErrUnavailable) || len(waits) != 1 {
		t.Errorf("away: waits for %+v, %v", waits, again)
	}
}
