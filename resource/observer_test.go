package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	libraryv1 "dbcontroller.dev/gen/library/v1"
	libraryv2 "dbcontroller.dev/gen/library/v2"
	_ "dbcontroller.dev/gen/secrets/v1"
)

// observing runs an observer of libraries until the changes are those wanted, and returns its error if
// it ends before.
type observing struct {
	t        *testing.T
	shelf    *shelf
	observer *Observer[*libraryv1.Library]
	changes  chan string
	fail     func(c Change[*libraryv1.Library]) error
}

func newObserving(t *testing.T) *observing {
	o := &observing{t: t, shelf: newShelf(t), changes: make(chan string, 1000)}
	o.observer = NewObserver(func(_ context.Context, c Change[*libraryv1.Library]) error {
		if o.fail != nil {
			if err := o.fail(c); err != nil {
				return err
			}
		}
		o.changes <- fmt.Sprintf("%s: %q to %q, known %t, listed %t", strings.TrimPrefix(c.Name, "libraries/"), c.Before.GetTitle(), c.After.GetTitle(), c.Known, c.Listed)
		return nil
	})
	return o
}

// run runs the observer; stop ends it and returns its error.
func (o *observing) run() (stop func() error) {
	ctx, cancel := context.WithCancel(o.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.observer.Run(ctx, o.shelf.libraries) }()
	return func() error { cancel(); return <-ended }
}

func (o *observing) expect(want ...string) {
	o.t.Helper()
	for _, w := range want {
		if got := <-o.changes; got != w {
			o.t.Errorf("saw %s, want %s", got, w)
		}
	}
}

func (o *observing) put(id, title string) {
	o.t.Helper()
	l := &libraryv1.Library{Name: "libraries/" + id, Title: title}
	_, err := o.shelf.libraries.Insert(o.t.Context(), l)
	if err != nil {
		_, err = o.shelf.libraries.Update(o.t.Context(), &libraryv1.UpdateLibraryRequest{Library: l})
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *observing) remove(id string) {
	o.t.Helper()
	if err := o.shelf.libraries.Delete(o.t.Context(), &libraryv1.DeleteRequest{Name: "libraries/" + id}); err != nil {
		o.t.Fatal(err)
	}
}

// TestObserver: it sees what is there, each change, and after a pause what differs.
func TestObserver(t *testing.T) {
	t.Parallel()
	o := newObserving(t)
	o.put("a", "A")
	o.put("b", "B")
	stop := o.run()
	o.expect(`a: "" to "A", known false, listed true`, `b: "" to "B", known false, listed true`)
	o.put("a", "A2")
	o.expect(`a: "A" to "A2", known true, listed false`)
	o.put("c", "C")
	o.expect(`c: "" to "C", known false, listed false`)
	o.remove("b")
	o.expect(`b: "B" to "", known true, listed false`)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	o.remove("c")
	o.put("a", "A3")
	o.put("d", "D")
	stop = o.run()
	o.expect(`a: "A2" to "A3", known true, listed false`, `d: "" to "D", known false, listed false`, `c: "C" to "", known true, listed false`)
	// What it has not seen change does not come again.
	o.put("e", "E")
	o.expect(`e: "" to "E", known false, listed false`)
	_ = stop()
	if len(o.changes) > 0 {
		t.Errorf("saw also %s", <-o.changes)
	}
}

// TestObserverFails: a change for which the function failed comes again, in the state of then.
func TestObserverFails(t *testing.T) {
	t.Parallel()
	o := newObserving(t)
	bad := errors.New("bad")
	fail := true
	o.fail = func(c Change[*libraryv1.Library]) error {
		if fail && c.Name == "libraries/b" {
			return bad
		}
		return nil
	}
	for _, id := range []string{"a", "b", "c"} {
		o.put(id, strings.ToUpper(id))
	}
	if err := o.observer.Run(t.Context(), o.shelf.libraries); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	o.expect(`a: "" to "A", known false, listed true`)
	o.put("b", "B2")
	fail = false
	stop := o.run()
	o.expect(`b: "" to "B2", known false, listed true`, `c: "" to "C", known false, listed true`)
	_ = stop()
	fail = true
	o.remove("b")
	if err := o.observer.Run(t.Context(), o.shelf.libraries); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	fail = false
	stop = o.run()
	o.expect(`b: "B2" to "", known true, listed false`)
	_ = stop()
}

// TestObserverIsBounded: beyond the bound it sees changes without the states before them.
func TestObserverIsBounded(t *testing.T) {
	t.Parallel()
	o := newObserving(t)
	o.put("a", "A")
	stop := o.run()
	o.expect(`a: "" to "A", known false, listed true`)
	_ = stop()
	o.observer.bytes += observerBytes
	o.put("b", "B")
	stop = o.run()
	o.expect(`b: "" to "B", known false, listed false`)
	o.put("b", "B2")
	o.expect(`b: "" to "B2", known true, listed false`)
	o.put("a", "A2")
	o.expect(`a: "A" to "A2", known true, listed false`)
	o.remove("b")
	o.expect(`b: "" to "", known true, listed false`)
	_ = stop()
	// The state of a was dropped as well, since it no longer fits.
	if got := o.observer.bytes; got != observerBytes {
		t.Errorf("it counts %d bytes more than it keeps", got-observerBytes)
	}
}

// TestImports: an import is recognized by its name and its counts, which add up.
func TestImports(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"library.v1.LibraryService": false, "secrets.v1.SecretService": true} {
		var found []protoreflect.Name
		methods := serviceOf(t, name).Methods()
		for i := range methods.Len() {
			if isImport(methods.Get(i)) {
				found = append(found, methods.Get(i).Name())
			}
		}
		if got := slices.Equal(found, []protoreflect.Name{"ImportSecrets"}); got != want {
			t.Errorf("%s has the imports %v", name, found)
		}
	}
	total, part := &libraryv1.Copies{Total: 3}, &libraryv1.Copies{Total: 4, Lent: 2}
	if err := addCounts(total.ProtoReflect(), part.ProtoReflect()); err != nil || !proto.Equal(total, &libraryv1.Copies{Total: 7, Lent: 2}) {
		t.Errorf("%v, %v", total, err)
	}
	raw, err := proto.Marshal(&libraryv2.Book{Shelf: "a field that part does not know"})
	if err == nil {
		err = proto.Unmarshal(raw, part)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := addCounts(total.ProtoReflect(), part.ProtoReflect()); err == nil {
		t.Error("what it does not know was left out")
	}
}

func serviceOf(t *testing.T, name string) protoreflect.ServiceDescriptor {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.ServiceDescriptor) //nolint:forcetypeassert // the name is that of a service
}
