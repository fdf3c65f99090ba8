package mongostore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
)

// asidePrefix begins the names of collections that somebody made under the name of a kind
// that is fenced. They are data of an application: nothing here ever drops them.
const asidePrefix = "dbc_aside."

// Uphold looks at a fence and puts it back.
func (n *Namespace) Uphold(ctx context.Context, f record.Fence, known []string) ([]record.Breach, error) {
	var found []record.Breach
	var err error
	switch f.Class {
	case record.FenceUUID, "":
		return nil, nil
	case record.FenceView:
		found, err = n.upholdView(ctx, f, known)
	case record.FenceValidator:
		found, err = n.upholdValidator(ctx, f)
	case record.FenceWriteBlock:
		found, err = n.upholdWriteBlock(ctx)
	default:
		err = unknownClass(f.Class)
	}
	if err != nil {
		return nil, fmt.Errorf("uphold fence of %s.%s: %w", n.name, f.Token.Kind, withPrivilege(err))
	}
	return found, nil
}

// upholdView looks at what bears the application's name. The collection itself is under
// a hidden one, that of the fence or a later one.
func (n *Namespace) upholdView(ctx context.Context, f record.Fence, known []string) ([]record.Breach, error) {
	own := f.Token.Kind
	aside := asidePrefix + own + "."
	all, err := n.list(ctx, bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "name", Value: own}},
		bson.D{{Key: "name", Value: bson.Regex{Pattern: `^` + regexp.QuoteMeta(aside)}}},
	}}})
	if err != nil {
		return nil, err
	}
	var at *collection
	var found []record.Breach
	for _, c := range all {
		if c.Name == own {
			at = &c
			continue
		}
		b, err := n.setAside(ctx, own, c.Name)
		if err != nil {
			return nil, err
		}
		found = append(found, b)
	}
	switch {
	case at == nil:
		// An insert that is faster makes a collection, which the next look finds.
		err := n.change(ctx, n.db, bson.D{{Key: "create", Value: own}, {Key: "viewOn", Value: f.To}, {Key: "pipeline", Value: viewPipeline(f.To)}})
		if err != nil {
			return nil, err
		}
		return append(found, record.Breach{What: fmt.Sprintf("the view %s was removed; it is put back", own)}), nil
	case at.Type == "view":
		on, _ := at.Options.Lookup("viewOn").StringValueOK()
		if at.fenceMark() == f.To && on == f.To {
			return found, nil
		}
		err := n.change(ctx, n.db, bson.D{{Key: "collMod", Value: own}, {Key: "viewOn", Value: f.To}, {Key: "pipeline", Value: viewPipeline(f.To)}})
		if err != nil {
			return nil, err
		}
		return append(found, record.Breach{What: fmt.Sprintf("the view %s was changed, so that readers saw something else; it is put back", own)}), nil
	case at.id() == f.Token.ID:
		f.Token.Name = own
		if err := n.Fence(ctx, f); err != nil {
			return nil, err
		}
		return append(found, record.Breach{What: fmt.Sprintf("the collection %s was given its name back, and is fenced again; what was written to it meanwhile is in it, and not in the other version", own)}), nil
	}
	if slices.Contains(known, at.id()) {
		return found, nil
	}
	// A stranger: moved away, and the view is in its place in the same moment.
	if err := n.noBuilds(ctx, own); err != nil {
		return nil, err
	}
	name := aside + at.id()[:12]
	if err := n.applyOps(ctx, bson.A{n.renameOp(own, name), n.viewOp(own, f.To)}); err != nil {
		return nil, err
	}
	if err := n.mark(ctx, f); err != nil {
		return nil, err
	}
	b, err := n.setAside(ctx, own, name)
	if err != nil {
		return nil, err
	}
	return append(found, b), nil
}

// setAside describes a collection that was set aside.
func (n *Namespace) setAside(ctx context.Context, own, name string) (record.Breach, error) {
	count, err := n.db.Collection(name).CountDocuments(ctx, bson.D{})
	if err != nil {
		return record.Breach{}, fmt.Errorf("count %s: %w", name, err)
	}
	return record.Breach{
		What: fmt.Sprintf("the view %s was removed and a collection made in its place, which took %d documents that the other version does not have; they are kept in %s",
			own, count, name),
		Aside: name, Count: count,
	}, nil
}

func (n *Namespace) upholdValidator(ctx context.Context, f record.Fence) ([]record.Breach, error) {
	c, err := n.fencedCollection(ctx, f.Token)
	if err != nil {
		return nil, err
	}
	if c.fenceMark() == f.To {
		return nil, nil
	}
	if err := n.fenceValidator(ctx, f); err != nil {
		return nil, err
	}
	return []record.Breach{{What: fmt.Sprintf("the validator of %s was removed; it is put back, and what was written meanwhile is in the collection, and not in the other version", f.Token.Name)}}, nil
}

func (n *Namespace) upholdWriteBlock(ctx context.Context) ([]record.Breach, error) {
	mode, err := n.writeBlockMode(ctx)
	if err != nil || mode == blockOn {
		return nil, err
	}
	if err := n.setWriteBlock(ctx, true); err != nil {
		return nil, err
	}
	if mode, err = n.writeBlockMode(ctx); err == nil && mode != blockOn {
		err = errors.New("the write block was not there when it was checked again")
	}
	return []record.Breach{{What: "the write block of the cluster was removed; it is put back, and what was written meanwhile is not in the other version"}}, err
}
