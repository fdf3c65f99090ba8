package conn_test

import (
	"testing"

	"dbcontroller.dev/internal/store/mongostore/storetest"
)

// TestConnectionsCount: whoever knows the number of connections knows whether a read may have come
// over a new one.
func TestConnectionsCount(t *testing.T) {
	b := storetest.NewBench(t)
	before := b.Connections()
	if before == 0 || b.Quietly().Connections() != before {
		t.Fatalf("%d connections, %d quietly", before, b.Quietly().Connections())
	}
	b.Conn.CloseConnections()
	storetest.WaitFor(t, func() bool {
		_, err := b.Marks(t.Context())
		return err == nil
	})
	if now := b.Connections(); now <= before {
		t.Errorf("%d connections, then %d", before, now)
	}
}
