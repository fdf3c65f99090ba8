package etcdstore_test

import (
	"testing"
	"time"
)

// TestStreamOfAQuietEtcd: a stream from the newest revision says how far it is where nobody writes
// anything at all. etcd answers no request for progress of a watch that begins in the future.
func TestStreamOfAQuietEtcd(t *testing.T) {
	t.Parallel()
	s := at(t, connect(t, startEtcd(t)), "/quiet/")
	kind := provisioned(t, s, "k").Kind
	from, err := s.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream := follow(t, s, kind)
	for range 2 {
		start := time.Now()
		batch, err := stream.Next(t.Context())
		if took := time.Since(start); err != nil || batch.Pos.At != from.At || took > 30*time.Second {
			t.Fatalf("after %s the stream is at %s, want %s: %v", took, batch.Pos.At, from.At, err)
		}
	}
}
