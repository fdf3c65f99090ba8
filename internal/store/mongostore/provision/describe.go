package provision

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// maxNamespace bounds the bytes of a database's name and a collection's name together, with the
// dot.
const maxNamespace = 255

// Describe returns the token and the declared shape of a collection. The shape leaves out a fence's
// validator, the condition that lets a managed kind's tombstones pass, and a label. Info.Exists is
// false if there is no such collection. A collection that cannot be a source or target is a
// record.UnsupportedError. An application's collection that took over the fence of the one it
// replaced is a record.ReplacedError.
func (n *Collections) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	info, err := n.describe(ctx, kind, name)
	if errors.Is(err, fences.ErrNothingNoted) && kind.Fixed {
		// A fence notes the former validator first, so this one came along from another collection.
		err = &record.ReplacedError{Kind: kind.Name, What: name + " has the fence of the collection that it replaced, as after movePrimary and reshardCollection"}
	}
	if err != nil {
		return record.Info{}, fmt.Errorf("describe %s.%s: %w", n.Name, name, conn.WithPrivilege(err))
	}
	return info, nil
}

func (n *Collections) describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	info := record.Info{Token: record.Token{Kind: kind.Name, Name: name, Fixed: kind.Fixed}}
	if size := len(n.Name) + len(".") + len(name); size > maxNamespace {
		return info, &record.UnsupportedError{What: "collection " + n.Name + "." + name,
			Reason: fmt.Sprintf("its name is too long: with the name of the database it has %d bytes, but MongoDB accepts %d", size, maxNamespace)}
	}
	early := n.askEarly(ctx, kind, name)
	defer early.leave()
	c, err := n.CollectionNamed(ctx, name)
	if err != nil || c == nil {
		return info, err
	}
	// Refuse before reading the shape: views have neither indexes nor these options.
	if err := n.refuse(ctx, c); err != nil {
		return info, err
	}
	info.Exists, info.Indexes = true, !kind.Fixed
	if err := early.asked.Wait(); err != nil {
		return info, err
	}
	info.Token = tokenOf(kind, c, early.checks)
	if info.Shape.Options, err = n.optionsOf(ctx, kind, c); err != nil {
		return info, err
	}
	if info.Shape.Indexes = early.indexes; !early.indexed {
		info.Shape.Indexes, err = n.indexesOf(ctx, info.Token)
	}
	return info, err
}

// early are questions of describe that do not wait for the collection's entry. Each is a round trip
// to a server that may be far away, and a switch describes collections while writes are held.
type early struct {
	asked   *errgroup.Group
	leave   func()     // ends the questions
	checks  bool       // whether the server checks collection UUIDs
	indexes []bson.Raw // valid if indexed is true
	indexed bool       // there was an answer
}

// askEarly begins to ask. It asks for the indexes only under a hidden name. The kind's own name may be
// free or a view's, and a switch then checks hundreds of names that have no indexes.
func (n *Collections) askEarly(ctx context.Context, kind record.KindSpec, name string) *early {
	ctx, cancel := context.WithCancel(ctx)
	e := &early{asked: new(errgroup.Group)}
	e.leave = func() {
		cancel()
		_ = e.asked.Wait() // nobody needs the answers
	}
	e.asked.Go(func() (err error) {
		e.checks, err = n.fences.Checks.Ask(ctx, struct{}{})
		return err
	})
	if name != kind.Name {
		e.asked.Go(func() error {
			specs, err := n.indexesOf(ctx, record.Token{Name: name})
			e.indexes, e.indexed = specs, err == nil // a failure is none yet: describe asks again
			return nil
		})
	}
	return e
}

// tokenOf returns the token of a collection. If the server does not check collection UUIDs the
// token has none, and data commands then send none.
func tokenOf(kind record.KindSpec, c *conn.Collection, checks bool) record.Token {
	tok := record.Token{Kind: kind.Name, Name: c.Name, Fixed: kind.Fixed}
	if checks {
		tok.ID = c.ID()
	}
	return tok
}

// refuse returns an error for a collection that cannot be a source or target.
func (n *Collections) refuse(ctx context.Context, c *conn.Collection) error {
	refused := func(reason string) error {
		return &record.UnsupportedError{What: "collection " + n.Name + "." + c.Name, Reason: reason}
	}
	// A retired view is also a view of ours; check it first for the better message.
	if c.Retired() {
		return &record.UnsupportedError{
			What: "collection " + n.Name + "." + c.Name, Retired: true,
			Reason: "it is the view that 'complete' left, so that applications that still use the name get an error",
		}
	}
	if c.Type == "view" && c.FenceMark() != "" {
		return &record.UnsupportedError{
			What: "collection " + n.Name + "." + c.Name, Reason: "it is the view that a fence left; the collection is " + c.ViewOn(), Fence: true,
		}
	}
	if c.Type != "collection" {
		return refused("it is a " + c.Type + "; only plain collections can be moved")
	}
	if err := checkOptions(n.Name+"."+c.Name, c.Options); err != nil {
		return err
	}
	return n.fences.RefuseShardKey(ctx, c, refused)
}

// checkOptions refuses collection options, found or declared, that the engine cannot support.
func checkOptions(what string, options bson.Raw) error {
	elems, err := options.Elements()
	if len(options) > 0 && err != nil {
		return fmt.Errorf("read options: %w", err)
	}
	for _, e := range elems {
		var reason string
		switch e.Key() {
		case "capped", "size", "max":
			reason = "it is capped: MongoDB removes documents without a change event, and larger documents cannot replace them"
		case "timeseries":
			reason = "it is a time series, and its measurements have no unique _id"
		case "viewOn", "pipeline":
			reason = "it is a view"
		case "encryptedFields":
			reason = "it is encrypted (queryable encryption): its state collections cannot be carried over"
		case "clusteredIndex":
			reason = "it is clustered: guards and range scans are not tested on clustered collections"
		case "collation":
			// The simple collation may be spelled out.
			collation, _ := e.Value().DocumentOK()
			if locale, _ := collation.Lookup("locale").StringValueOK(); locale == "simple" {
				continue
			}
			reason = "it has its own collation, which can treat different names as equal; only the simple collation is supported"
		default:
			continue
		}
		return &record.UnsupportedError{What: "collection " + what, Reason: reason}
	}
	return nil
}

// optionsOf returns the options to create an equal collection with. It leaves out what Provision
// adds for the tombstones of a managed kind.
func (n *Collections) optionsOf(ctx context.Context, kind record.KindSpec, c *conn.Collection) (bson.Raw, error) {
	var validation fences.Restoration
	// Of a fenced collection, this is the validator that the fence replaced.
	text, err := n.fences.ValidatorIn(ctx, c)
	if err == nil {
		validation, err = fences.RestorationFrom(text)
	}
	if err != nil {
		return nil, err
	}
	elems, err := c.Options.Elements()
	if err != nil {
		return nil, fmt.Errorf("read options: %w", err)
	}
	var options bson.D
	for _, e := range elems {
		switch e.Key() {
		case "validator", "validationLevel", "validationAction":
		default:
			options = append(options, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	if !kind.Fixed {
		validation.Validator = withoutTombstones(validation.Validator)
	}
	// A label belongs to the running system, not to the declared shape.
	if conn.IsLabel(validation.Validator) {
		validation.Validator = nil
	}
	// An empty validator means the same as none.
	if len(validation.Validator) > len(wire.EmptyDocument) {
		options = append(options, bson.E{Key: "validator", Value: validation.Validator})
		// Skip defaults: a removed fence sets them explicitly, and shapes would differ.
		if validation.Level != "" && validation.Level != "strict" {
			options = append(options, bson.E{Key: "validationLevel", Value: validation.Level})
		}
		if validation.Action != "" && validation.Action != "error" {
			options = append(options, bson.E{Key: "validationAction", Value: validation.Action})
		}
	}
	if len(options) == 0 {
		return nil, nil
	}
	raw, err := bson.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("write options: %w", err)
	}
	return raw, nil
}
