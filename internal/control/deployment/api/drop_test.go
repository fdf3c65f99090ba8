package api

import (
	"testing"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
)

// TestDropsMeet: of two calls that drop one client, the later one leaves a registration alone that was
// made between them. A place that is given back twice would let callers have more than may be.
func TestDropsMeet(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	v := New(w.Coord, w.Store, Config{})
	v.clients.running = true
	register := func(id string) {
		t.Helper()
		if _, err := v.RegisterClient(t.Context(), connect.NewRequest(&pb.RegisterClientRequest{ClientId: id})); err != nil {
			t.Fatal(err)
		}
	}
	ids := []string{"client-shop-a", "client-shop-b"}
	for _, id := range ids {
		register(id)
	}
	first := ""
	v.dropClients(t.Context(), func(key string, _ *client) bool {
		if first != "" {
			return true // the registration that was dropped meanwhile, if it were asked for
		}
		// The call has read which clients there are. Another one is quicker at the second of them.
		first = key
		other := ids[0]
		if key == w.Store.Name()+"/"+other {
			other = ids[1]
		}
		v.clients.mu.Lock()
		held := v.clients.byKey[key] // locked by this call; the other one passes it over
		delete(v.clients.byKey, key)
		v.clients.mu.Unlock()
		v.dropClients(t.Context(), func(string, *client) bool { return true })
		register(other)
		v.clients.mu.Lock()
		v.clients.byKey[key] = held
		v.clients.mu.Unlock()
		return false
	})
	v.clients.mu.Lock()
	places, n := v.clients.places.all, len(v.clients.byKey)
	v.clients.mu.Unlock()
	if n != 2 || places != 2 {
		t.Errorf("%d registrations hold %v places, want 2 and 2", n, places)
	}
	v.endClients(t.Context())
	if v.clients.places.all != 0 || len(v.clients.byKey) != 0 {
		t.Errorf("in the end %d registrations hold %v places", len(v.clients.byKey), v.clients.places.all)
	}
}
