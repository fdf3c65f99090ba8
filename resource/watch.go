package resource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// Event is one event of a watch: a resource that exists or has changed, the name of a deleted one,
// or the end of the initial state.
type Event[M proto.Message] struct {
	Type    vrunner.EventType
	Name    string
	Message M // set for EventPut
}

// Watch sends the requested resources and then their changes, until ctx ends. It subscribes before
// it lists, so it reads a change in between twice and never misses it. It stops at the first error
// of send. The names that it remembers and the events that it sends count as memory of the request.
// If there is no memory for its first event, it ends with UNAVAILABLE. Later it waits for memory.
func (t *Table[M]) Watch(ctx context.Context, req proto.Message, send func(Event[M]) error) error {
	r := t.request(req)
	memory.Of(ctx).Settle(int64(proto.Size(req))) // a watch lives long; free the request body
	w := &watch[M]{table: t, mask: r.mask(r.roles.ReadMask), out: send, told: told{latest: map[string]digest{}, held: memory.Of(ctx).Hold()}, sends: memory.Of(ctx).Hold()}
	defer w.told.held.Set(0)
	var err error
	if w.in, err = t.within(r); err != nil {
		return err
	}
	if w.selected, err = t.selection(r.text(r.roles.Filter), "", w.in.where, w.mask); err != nil {
		return err
	}
	kinds := []string{t.cfg.Kind}
	if t.cfg.Parts != nil {
		kinds = append(kinds, t.cfg.Parts.Kind)
	}
	// Subscribe before the list. A change between the two would otherwise be missed.
	changes, err := t.store.Changes(ctx, kinds...)
	if err != nil {
		return err
	}
	defer changes.Close()
	lister, lists := changes.(vrunner.Lister)
	err = t.each(ctx, w.in, w.selected, newRoom().wait, func(name string, m M) error {
		// A record that is deleted before its first change must be reported as well.
		if lists {
			lister.Listed(t.cfg.Kind, name)
		}
		return w.send(name, m)
	})
	if err != nil {
		return err
	}
	if err := send(Event[M]{Type: vrunner.EventLevel}); err != nil {
		return err
	}
	for {
		dirty, err := changes.Next(ctx)
		if err != nil {
			return err
		}
		for _, name := range t.changed(dirty) {
			// Outside of this loop nothing is held, so a wait here blocks no other watch.
			if err := whenRoom(ctx, func() error { return w.show(ctx, name) }); err != nil {
				return err
			}
		}
	}
}

// changed returns the resources of dirty records, each once.
func (t *Table[M]) changed(dirty []vrunner.Dirty) []string {
	var names []string
	seen := map[string]bool{}
	for _, d := range dirty {
		name := d.Name
		// A part belongs to the resource that its key begins with.
		if at := strings.LastIndex(name, "/"); d.Kind != t.cfg.Kind && at >= 0 {
			name = name[:at]
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// digest identifies the content of a message. The probability of a collision is negligible.
type digest [16]byte

// watch is one client's stream.
type watch[M proto.Message] struct {
	table    *Table[M]
	in       within
	selected selection
	mask     *fieldmaskpb.FieldMask
	out      func(Event[M]) error
	told     told
	sends    *memory.Held // for the current event, until the client has read it
}

// told remembers which messages the client has. Without memory for more it forgets everything. From
// then on the client gets every change, and the deletion even of a resource that it never had.
type told struct {
	latest   map[string]digest
	bytes    int64
	held     *memory.Held
	overflow bool
	// last is the name of the latest event if that was a deletion and overflow is set. A deletion
	// changes several records of a resource, one after the other, but the client needs one event.
	last string
}

const (
	// entryBytes is the approximate size of a map entry without its name.
	entryBytes = 100
	// toldBytes bounds the remembered names and digests, in bytes. It leaves the request memory for
	// its events.
	toldBytes = 32 << 20
)

// put reports whether the client needs a message, and remembers it.
func (t *told) put(name string, now digest) bool {
	before, known := t.latest[name]
	switch {
	case t.overflow:
		// The resource exists again, so its next deletion is a new event.
		t.last = ""
		return true
	case known && before == now:
		return false
	case !known:
		t.bytes += int64(len(name) + entryBytes)
		// A watch also works without remembered names, so their memory is optional.
		if t.bytes > toldBytes || !t.held.SetSpare(t.bytes) {
			t.forget()
			return true
		}
	}
	t.latest[name] = now
	return true
}

// forget drops all names and remembers none from now on.
func (t *told) forget() {
	t.overflow, t.latest = true, nil
	t.held.Set(0)
}

// remove reports whether the client may have a deleted resource, and forgets it.
func (t *told) remove(name string) bool {
	if t.overflow {
		// Several records report one deletion. Only repeats in a row are known to be repeats.
		again := t.last == name
		t.last = name
		return !again
	}
	if _, known := t.latest[name]; !known {
		return false
	}
	delete(t.latest, name)
	t.bytes -= int64(len(name) + entryBytes)
	return t.held.Set(t.bytes) // a smaller number always fits
}

// show is follow. If the remembered names take the memory that the resource needs, it forgets them
// and retries.
func (w *watch[M]) show(ctx context.Context, name string) error {
	err := w.follow(ctx, name)
	// ErrNoRoom means that other requests hold the memory. The caller waits for them.
	if errors.Is(err, record.ErrTooLarge) && !errors.Is(err, memory.ErrNoRoom) && !w.told.overflow {
		w.told.forget()
		err = w.follow(ctx, name)
	}
	return err
}

// follow reads a changed resource and sends its state.
func (w *watch[M]) follow(ctx context.Context, name string) error {
	if w.in.none || !w.in.scope.holds(name) {
		return nil
	}
	reading, read := memory.Read(ctx)
	defer read.Drop()
	// A change only names the record, so the present state is read.
	rec, err := w.table.store.Get(reading, w.table.cfg.Kind, name)
	if errors.Is(err, record.ErrNotFound) {
		return w.gone(name)
	}
	if err != nil {
		return err
	}
	m, ok, err := w.table.show(reading, w.selected, name, rec)
	read.Drop() // the event counts separately
	switch {
	case errors.Is(err, record.ErrMismatch):
		return nil // it changed during the read, and that change is still to come
	case err != nil:
		return err
	// A resource that no longer matches the filter is deleted for this client.
	case !ok:
		return w.gone(name)
	}
	return w.send(name, m)
}

// send sends a resource unless the client has it already. One change may be reported several times,
// once for each of its records. It may also affect only fields that the client did not ask for.
func (w *watch[M]) send(name string, m M) error {
	// The mask comes first, so that a change of other fields sends nothing.
	if err := listing.ApplyMask(m, w.mask); err != nil {
		return err
	}
	// Equal messages need equal bytes. Otherwise the client gets the same state twice.
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	sum := sha256.Sum256(raw)
	if !w.told.put(name, digest(sum[:len(digest{})])) {
		return nil
	}
	// Between database and connection the message exists encoded and decoded, each about twice.
	const copies = 4
	if size := int64(copies * len(raw)); !w.sends.Set(size) {
		if !w.sends.Possible(size) {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s is too large to be sent", name))
		}
		// The event needs the memory more than the remembered names. Without them, the client may
		// get an event twice.
		w.told.forget()
		if !w.sends.Set(size) {
			return noRoom()
		}
	}
	defer w.sends.Set(0)
	return w.out(Event[M]{vrunner.EventPut, name, m})
}

// gone sends the deletion of a resource that was deleted or no longer matches the filter, if the
// client has it.
func (w *watch[M]) gone(name string) error {
	if !w.told.remove(name) {
		return nil
	}
	return w.out(Event[M]{Type: vrunner.EventDelete, Name: name})
}
