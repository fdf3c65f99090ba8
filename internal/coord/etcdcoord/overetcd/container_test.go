package overetcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"dbcontroller.dev/integration/localdocker"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/coordtest"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// TestConformanceOfTheImage: the program etcd, from its image and with its own defaults, passes the
// suite like the etcd embedded here.
func TestConformanceOfTheImage(t *testing.T) {
	localdocker.Require(t)
	startContainer := func(t *testing.T) []string {
		t.Helper()
		c, err := localdocker.Run(t.Context(), "etcd")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return []string{c.Address}
	}
	shared := startContainer(t)
	var n atomic.Int64
	coordtest.Exercise(t, func(t *testing.T) coord.Store {
		at := shared
		// A compaction would disturb the other cases.
		if strings.Contains(t.Name(), "Compact") {
			at = startContainer(t)
		}
		return newSuite(t, etcdcoord.Config{Endpoints: at, Prefix: fmt.Sprintf("test/%d/", n.Add(1))})
	})
}
