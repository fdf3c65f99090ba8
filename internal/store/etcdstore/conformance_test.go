package etcdstore_test

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

func TestMain(m *testing.M) {
	code := localetcd.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// What the etcd of these tests takes: the suite has transactions of thousands of records.
const (
	mostOperations = 8192
	mostBytes      = 8 << 20
	documentBytes  = mostBytes - 64<<10
)

func startEtcd(t testing.TB) string {
	t.Helper()
	return localetcd.Start(t, localetcd.Options{Operations: mostOperations, Bytes: mostBytes})
}

func connect(t testing.TB, endpoint string) *etcdconn.Conn {
	t.Helper()
	conn, err := etcdconn.Open(t.Context(), etcdconn.Config{Endpoints: []string{endpoint}, MaxRequest: mostBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func at(t testing.TB, conn *etcdconn.Conn, prefix string) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.New(conn, etcdstore.Config{Prefix: prefix, Operations: mostOperations, Bytes: documentBytes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// factory makes namespaces in one etcd, but for those whose history is lost, which have one of
// their own: all of an etcd has one history.
func factory(t *testing.T) recordtest.Factory {
	shared := startEtcd(t)
	var made atomic.Int64
	return func(t *testing.T) recordtest.Backend {
		endpoint := shared
		if strings.HasSuffix(t.Name(), "changes") {
			endpoint = startEtcd(t)
		}
		conn, prefix := connect(t, endpoint), fmt.Sprintf("/suite/%d/", made.Add(1))
		s := at(t, conn, prefix)
		return recordtest.Backend{
			Namespace: s, Client: s, NoIndexes: true, NoOptions: true, MaxDocument: documentBytes,
			Reopen:      func() record.Namespace { return at(t, connect(t, endpoint), prefix) },
			LoseHistory: func(t *testing.T) { compact(t, conn) },
			Leftovers: func(t *testing.T) (left []string) {
				resp, err := conn.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
				if err != nil {
					t.Fatal(err)
				}
				for _, kv := range resp.Kvs {
					left = append(left, string(kv.Key))
				}
				return left
			},
		}
	}
}

// compact forgets all that has been.
func compact(t *testing.T, conn *etcdconn.Conn) {
	t.Helper()
	resp, err := conn.Put(t.Context(), "/compacted", "")
	if err == nil {
		_, err = conn.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) { recordtest.Exercise(t, factory(t)) }

// Appliers whose acknowledgements get lost, whose servers are away and whose batches are
// sent late still bring the target to the newest state.
func TestConvergenceUnderFaults(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"lost acknowledgements": faultstore.Lost(),
		"connections cut":       faultstore.Cut(),
		"server down":           faultstore.Down(),
	} {
		t.Run(name, func(t *testing.T) {
			fired := faultstore.Count(faultstore.On(faultstore.Probability(7, 0.3, f), faultstore.Apply, faultstore.Load))
			backend := factory(t)
			recordtest.ExerciseConvergence(t, func(t *testing.T) recordtest.Backend {
				b := backend(t)
				b.Namespace = faultstore.Wrap(b.Namespace, fired)
				return b
			})
			fired.AssertFired(t, 20)
		})
	}
}
