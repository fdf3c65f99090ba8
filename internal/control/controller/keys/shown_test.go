package keys

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
)

// silent are the notes of a database that does not answer.
type silent struct{ *recordtest.Notes }

func (silent) State(context.Context) (sealed.State, error) {
	return sealed.State{}, errors.New("no reachable servers")
}

// TestKeysAreShown as the database has them, and as it had them while it is away.
func TestKeysAreShown(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "a001", "a001", "a002"))
	wants := func(when string, want *pb.Encryption) {
		t.Helper()
		k.showKeys(t.Context(), "v1")
		got := k.encrypted.all()["v1"]
		if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&pb.Encryption{}, "at")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if got != nil && (got.GetAt() != "") != (got.GetError() != "") {
			t.Errorf("%s it says it was so at %q", when, got.GetAt())
		}
	}
	wants("at first", &pb.Encryption{Key: "a001", Keys: []string{"a001"}, Every: true, Active: "a001"})
	k.check(k.way.Sealer().Turn(t.Context(), "", "r1", "a002", nil))
	turned := &pb.Encryption{Key: "a002", Keys: []string{"a001", "a002"}, Active: "a001"}
	wants("in a rotation", turned)
	k.keys = keysOf(t, "a002", "a001", "a002")
	k.way = sealed.New("v1", func() *sealed.Keys { return k.keys }, silent{k.notes}).Namespace(k.store)
	turned.Active, turned.Error = "a002", "read the keys of the records: no reachable servers"
	wants("while it is away", turned)
	k.login(k.store)
	turned.Error = ""
	wants("when it is back", turned)
	k.keys = keysOf(t, "")
	wants("without keys", nil)
}
