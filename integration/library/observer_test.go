package library_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev"
	v1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
	v2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/gen/library/v2/libraryv2connect"
	"dbcontroller.dev/integration/library"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// observed are the changes that an observer has seen, as text.
type observed struct {
	s    *system
	mu   sync.Mutex
	seen []string
}

func (o *observed) add(name, before, after string, known, listed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, fmt.Sprintf("%s: %q to %q, known %t, listed %t", name, before, after, known, listed))
}

// expect waits for changes, which are all since the last call, in any order: an observer that begins
// again after a flip lists what is there first, and then what is gone.
func (o *observed) expect(want ...string) {
	o.s.t.Helper()
	o.s.eventually(fmt.Sprintf("%q are seen", want), func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		slices.Sort(o.seen)
		if !slices.Equal(o.seen, slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("saw %q", o.seen)
		}
		o.seen = nil
		return nil
	})
}

// first waits for the first n changes. The observer may have begun before or after them.
func (o *observed) first(n int) {
	o.s.t.Helper()
	o.s.eventually("the first changes are seen", func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.seen) != n {
			return fmt.Errorf("saw %q", o.seen)
		}
		o.seen = nil
		return nil
	})
}

// TestObservers: an observer of each version sees each change once, in its version's form, whichever
// version's client made it and whichever version is active.
func TestObservers(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	old, now := &observed{}, &observed{}
	service := library.Service
	service.Versions = slices.Clone(service.Versions)
	// Both servers share these, but one runs at a time.
	libraries := resource.NewObserver(func(_ context.Context, c resource.Change[*v1.Library]) error {
		old.add(c.Name, c.Before.GetTitle(), c.After.GetTitle(), c.Known, c.Listed)
		return nil
	})
	branches := resource.NewObserver(func(_ context.Context, c resource.Change[*v2.Branch]) error {
		now.add(c.Name, c.Before.GetDisplayName(), c.After.GetDisplayName(), c.Known, c.Listed)
		return nil
	})
	service.Versions[0].Observers = []vrunner.Observer{{Name: "libraries", Leader: true, Run: func(ctx context.Context, data dbcontroller.Store) error {
		return libraries.Run(ctx, resource.New(data, resource.Config[*v1.Library]{Kind: "libraries", Pattern: "libraries/{library}"}))
	}}}
	service.Versions[1].Observers = []vrunner.Observer{{Name: "branches", Leader: true, Run: func(ctx context.Context, data dbcontroller.Store) error {
		return branches.Run(ctx, resource.New(data, resource.Config[*v2.Branch]{Kind: "branches", Pattern: "branches/{branch}"}))
	}}}
	s := startService(ctx, t, service)
	old.s, now.s = s, s
	v1API, v2API := libraryv1connect.NewLibraryServiceClient(s.http, s.servers[0]), libraryv2connect.NewLibraryServiceClient(s.http, s.servers[1])
	create := func(id, title string) {
		t.Helper()
		if _, err := v1API.CreateLibrary(ctx, connect.NewRequest(&v1.CreateLibraryRequest{LibraryId: id, Library: &v1.Library{Title: title}})); err != nil {
			t.Fatal(err)
		}
	}
	switchTo := func(args ...string) {
		t.Helper()
		// It refuses while it checks its databases.
		s.eventually(args[0], func() error { return s.command(ctx, append(args, "--server", s.control)...) })
	}
	create("main", "Main")
	create("north", "North")
	old.first(2)

	switchTo("begin-upgrade", "deployment", "--target-version", "v2")
	now.first(2)
	s.eventually("v2 is active", func() error {
		_, err := v2API.UpdateBranch(ctx, connect.NewRequest(&v2.UpdateBranchRequest{Branch: &v2.Branch{Name: "branches/main", DisplayName: "Centre"}}))
		return err
	})
	create("south", "South")
	old.expect(`libraries/main: "Main" to "Centre", known true, listed false`, `libraries/south: "" to "South", known false, listed false`)
	now.expect(`branches/main: "Main" to "Centre", known true, listed false`, `branches/south: "" to "South", known false, listed false`)

	switchTo("rollback")
	if _, err := v1API.DeleteLibrary(ctx, connect.NewRequest(&v1.DeleteRequest{Name: "libraries/north"})); err != nil {
		t.Fatal(err)
	}
	if _, err := v1API.UpdateLibrary(ctx, connect.NewRequest(&v1.UpdateLibraryRequest{Library: &v1.Library{Name: "libraries/main", Title: "Main again"}})); err != nil {
		t.Fatal(err)
	}
	old.expect(`libraries/north: "North" to "", known true, listed false`, `libraries/main: "Centre" to "Main again", known true, listed false`)
	// Sync brings both to v2.
	now.expect(`branches/main: "Centre" to "Main again", known true, listed false`, `branches/north: "North" to "", known true, listed false`)
}
