package bbs

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/sample/bbs/converge"
	"dbcontroller.dev/vrunner"
)

// instances are the instances of processes in one version's data, and the cells that run them.
// G is the message of an index, C that of a cell. What cells say is the same in both versions,
// and is decided by converge.
type instances[G, C proto.Message] struct {
	store vrunner.Store
	table *resource.Table[G]
	cells *resource.Table[C]
	forms forms[G, C]
}

// forms are how a version's messages hold what converge works with.
type forms[G, C proto.Message] struct {
	slot    func(G) converge.Slot
	set     func(G, converge.Slot)
	group   func(name, guid string, index int) G
	request func(name string) proto.Message // any that names an index
	cell    func(id string) C
	seen    func(C, time.Time)
	seenAt  func(C) (id string, at time.Time)
}

func newInstances[G, C proto.Message](store vrunner.Store, f forms[G, C]) instances[G, C] {
	return instances[G, C]{
		store: store, forms: f,
		table: resource.New(store, resource.Config[G]{Kind: KindActualLRPs, Pattern: converge.NamePattern, MaxID: maxName}),
		cells: resource.New(store, resource.Config[C]{Kind: KindCells, Pattern: "{cell_id}", NameField: "cell_id", MaxID: maxName}),
	}
}

// change makes what a cell or a client says of an instance.
func (in instances[G, C]) change(ctx context.Context, req proto.Message, say func(*converge.Slot) error) (G, error) {
	return in.table.Change(ctx, req, func(g G) error {
		s := in.forms.slot(g)
		if err := say(&s); err != nil {
			return connect.NewError(connect.CodeFailedPrecondition, err)
		}
		in.set(g, s)
		return nil
	})
}

// set writes a slot to its message. A new instance gets its placement here.
func (in instances[G, C]) set(g G, s converge.Slot) {
	if s.Instance != nil && s.Instance.Placement == "" {
		drawn := *s.Instance
		drawn.Placement = resource.RandomID()
		s.Instance = &drawn
	}
	in.forms.set(g, s)
}

// onCell is what a request says of an instance on a cell.
type onCell interface {
	proto.Message
	GetInstanceGuid() string
	GetCellId() string
}

func checkCell(req onCell) error {
	if err := checkName("instance_guid", req.GetInstanceGuid()); err != nil {
		return err
	}
	return checkName("cell_id", req.GetCellId())
}

// told makes what a cell says of an instance that it has, or takes.
func (in instances[G, C]) told(ctx context.Context, req onCell, say func(s *converge.Slot, guid, cell string, now time.Time) error) (G, error) {
	if err := checkCell(req); err != nil {
		var none G
		return none, err
	}
	return in.change(ctx, req, func(s *converge.Slot) error {
		return say(s, req.GetInstanceGuid(), req.GetCellId(), time.Now())
	})
}

func (in instances[G, C]) claim(ctx context.Context, req onCell) (G, error) {
	return in.told(ctx, req, (*converge.Slot).Claim)
}

func (in instances[G, C]) start(ctx context.Context, req onCell) (G, error) {
	return in.told(ctx, req, (*converge.Slot).Start)
}

func (in instances[G, C]) evacuate(ctx context.Context, req onCell) (G, error) {
	return in.told(ctx, req, (*converge.Slot).Evacuate)
}

func (in instances[G, C]) remove(ctx context.Context, req onCell) (G, error) {
	return in.told(ctx, req, func(s *converge.Slot, guid, cell string, _ time.Time) error {
		s.Remove(guid, cell)
		return nil
	})
}

func (in instances[G, C]) crash(ctx context.Context, req interface {
	onCell
	GetCrashReason() string
}) (G, error) {
	return in.told(ctx, req, func(s *converge.Slot, guid, cell string, now time.Time) error {
		return s.Crash(guid, cell, bounded(req.GetCrashReason()), now)
	})
}

func (in instances[G, C]) fail(ctx context.Context, req interface {
	proto.Message
	GetPlacementError() string
}) (G, error) {
	return in.change(ctx, req, func(s *converge.Slot) error { return s.Fail(bounded(req.GetPlacementError())) })
}

func (in instances[G, C]) retire(ctx context.Context, req proto.Message) (G, error) {
	return in.change(ctx, req, func(s *converge.Slot) error {
		s.RetireInstance()
		return nil
	})
}

// bounded is as much of a reason as is kept.
func bounded(reason string) string {
	const most = 1024
	return strings.ToValidUTF8(reason[:min(len(reason), most)], "")
}

// report notes that a cell is alive.
func (in instances[G, C]) report(ctx context.Context, req interface {
	proto.Message
	GetCellId() string
}) error {
	now := time.Now()
	_, err := in.cells.Change(ctx, req, func(c C) error {
		in.forms.seen(c, now)
		return nil
	})
	if !errors.Is(err, record.ErrNotFound) {
		return err
	}
	c := in.forms.cell(req.GetCellId())
	in.forms.seen(c, now)
	if _, err = in.cells.Insert(ctx, c); errors.Is(err, record.ErrExists) {
		return nil // by another report, just now
	}
	return err
}

// timeOf and millisOf turn times into what messages hold; 0 is none.
func timeOf(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis)
}

func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
