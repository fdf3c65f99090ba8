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

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// Event is what a watch sends: a resource that is there or has changed, the name of one that
// is gone, or that the initial state is complete.
type Event[M proto.Message] struct {
	Type    vrunner.EventType
	Name    string
	Message M // of EventPut
}

// Watch sends what a request asks for and then what changes, until ctx ends. It subscribes
// before it lists: what changes meanwhile is read a second time, never left out. What it
// remembers and sends counts as the memory of the request. Without room before it has sent
// anything it ends with UNAVAILABLE; later it waits for room.
func (t *Table[M]) Watch(ctx context.Context, req proto.Message, send func(Event[M]) error) error {
	r := t.request(req)
	memory.Of(ctx).Settle(int64(proto.Size(req))) // a watch lives long
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
	changes, err := t.store.Changes(ctx, kinds...)
	if err != nil {
		return err
	}
	defer changes.Close()
	lister, lists := changes.(vrunner.Lister)
	err = t.each(ctx, w.in, w.selected, newRoom().wait, func(name string, m M) error {
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
			if err := whenRoom(ctx, func() error { return w.follow(ctx, name) }); err != nil {
				return err
			}
		}
	}
}

// WatchTo is Watch for a handler: it sends the events as messages of type Res, which has an
// enum for the type of the event, a string for the name and a field for the resource.
func WatchTo[M proto.Message, Res any](ctx context.Context, t *Table[M], req proto.Message, out *connect.ServerStream[Res]) error {
	first, ok := any(new(Res)).(proto.Message)
	if !ok {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("%T is no protobuf message", first))
	}
	layout, err := eventsOf(first.ProtoReflect().Descriptor(), t.name.Name(), t.message)
	if err != nil {
		return connect.NewError(connect.CodeInternal, err)
	}
	return apiversion.CodeError(t.Watch(ctx, req, func(e Event[M]) error {
		res := new(Res)
		layout.write(any(res).(proto.Message).ProtoReflect(), e.Type, e.Name, e.Message.ProtoReflect()) //nolint:forcetypeassert // as first
		return out.Send(res)
	}))
}

// changed are the resources of dirty records, each once.
func (t *Table[M]) changed(dirty []vrunner.Dirty) []string {
	var names []string
	seen := map[string]bool{}
	for _, d := range dirty {
		name := d.Name
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

// digest stands for a message that was sent. Two that differ have the same one only with
// a probability that does not matter.
type digest [16]byte

// watch is one client's stream.
type watch[M proto.Message] struct {
	table    *Table[M]
	in       within
	selected selection
	mask     *fieldmaskpb.FieldMask
	out      func(Event[M]) error
	told     told
	sends    *memory.Held // for the event that is being sent, as long as the client does not read it
}

// told is what the client has. Without room for more it no longer remembers anything. From then on
// the client gets every change, and the end of a resource even if it never had that.
type told struct {
	latest   map[string]digest
	bytes    int64
	held     *memory.Held
	overflow bool
	// last is the name of the latest event, if that was an end and overflow is set. The records of one
	// resource end one after the other, and the client needs one event.
	last string
}

const (
	// entryBytes is about what an entry of a map takes next to its name.
	entryBytes = 100
	// toldBytes leaves the request room for what it sends.
	toldBytes = 32 << 20
)

// put reports whether a message is news for the client.
func (t *told) put(name string, now digest) bool {
	before, known := t.latest[name]
	switch {
	case t.overflow:
		t.last = ""
		return true
	case known && before == now:
		return false
	case !known:
		t.bytes += int64(len(name) + entryBytes)
		if t.bytes > toldBytes || !t.held.SetSpare(t.bytes) {
			t.forget()
			return true
		}
	}
	t.latest[name] = now
	return true
}

// forget remembers nothing from now on.
func (t *told) forget() {
	t.overflow, t.latest = true, nil
	t.held.Set(0)
}

// remove reports whether the client may have the resource that is gone.
func (t *told) remove(name string) bool {
	if t.overflow {
		again := t.last == name
		t.last = name
		return !again
	}
	if _, known := t.latest[name]; !known {
		return false
	}
	delete(t.latest, name)
	t.bytes -= int64(len(name) + entryBytes)
	return t.held.Set(t.bytes) // fewer than before always fit
}

// follow reads a resource that changed.
func (w *watch[M]) follow(ctx context.Context, name string) error {
	if w.in.none || !w.in.scope.holds(name) {
		return nil
	}
	reading, read := memory.Read(ctx)
	defer read.Drop()
	rec, err := w.table.store.Get(reading, w.table.cfg.Kind, name)
	if errors.Is(err, record.ErrNotFound) {
		return w.gone(name)
	}
	if err != nil {
		return err
	}
	m, ok, err := w.table.show(reading, w.selected, name, rec)
	read.Drop() // what is sent counts by itself
	switch {
	case errors.Is(err, record.ErrMismatch):
		return nil // it changed while it was read: that change is still to come
	case err != nil:
		return err
	case !ok:
		return w.gone(name)
	}
	return w.send(name, m)
}

// send sends a resource, unless the client has it as it is: the records of one change may
// come apart, and a change may be in fields that the client did not ask for.
func (w *watch[M]) send(name string, m M) error {
	if err := listing.ApplyMask(m, w.mask); err != nil {
		return err
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	sum := sha256.Sum256(raw)
	if !w.told.put(name, digest(sum[:len(digest{})])) {
		return nil
	}
	// Between the database and the connection it is there encoded and decoded, about twice each.
	const copies = 4
	if size := int64(copies * len(raw)); !w.sends.Set(size) {
		if !w.sends.Possible(size) {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s is too large to be sent", name))
		}
		// What is sent needs the room more. Without it, the event is sent later as news.
		w.told.forget()
		if !w.sends.Set(size) {
			return noRoom()
		}
	}
	defer w.sends.Set(0)
	return w.out(Event[M]{vrunner.EventPut, name, m})
}

// gone tells of a resource that is deleted or no longer meets the filter, if the client
// has it.
func (w *watch[M]) gone(name string) error {
	if !w.told.remove(name) {
		return nil
	}
	return w.out(Event[M]{Type: vrunner.EventDelete, Name: name})
}
