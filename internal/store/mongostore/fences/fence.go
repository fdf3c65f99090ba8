package fences

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// Prepare chooses the fence class of a kind and returns the text that Unfence needs.
//
// A managed kind gets FenceUUID if the server passes the self-test of collectionUUID. Otherwise its
// tokens carry no UUID either, and it gets FenceValidator.
//
// A fixed-name kind is refused without collectionUUID, because nothing would distinguish its
// collection from another one with its name. Otherwise it gets the wanted class if that is
// possible. Without a wish it gets FenceView if an atomic rename with a view works and the
// privileges allow it (never through mongos), else FenceValidator. FenceWriteBlock is used only on
// request, since it stops every database of the cluster. A quiet namespace uses only
// FenceValidator.
func (n *Fences) Prepare(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	class, restore, err := n.chooseFence(ctx, tok, want)
	if err != nil {
		return "", "", fmt.Errorf("prepare fence of %s: %w", tok.Name, err)
	}
	return class, restore, nil
}

func (n *Fences) chooseFence(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	if !tok.Fixed {
		return n.chooseManaged(ctx, tok, want)
	}
	if err := n.refuseFixed(ctx, tok); err != nil {
		return "", "", err
	}
	// Report a missing privilege now, although a quiet namespace uses another class.
	if n.Quiet && want == record.FenceWriteBlock {
		if err := n.probeWriteBlock(ctx); err != nil { // it only reads
			return "", "", err
		}
	}
	// A quiet namespace must not lock or block the server, so it takes the harmless class.
	if n.Quiet && want != record.FenceUUID {
		want = record.FenceValidator
	}
	switch want {
	case record.FenceUUID:
		return "", "", &record.UnsupportedError{
			What:   "fence class uuid for " + n.Name + "." + tok.Name,
			Reason: "the application does not send collection UUIDs; use view, validator or writeBlock",
		}
	case record.FenceWriteBlock:
		return want, "", n.probeWriteBlock(ctx)
	case record.FenceView, "":
		refused, err := n.probeView(ctx)
		if err != nil {
			return "", "", err
		}
		if refused == nil {
			return record.FenceView, "", nil
		}
		if want == record.FenceView {
			return "", "", refused
		}
		n.Log.Info("view fence is not available", zap.String("kind", tok.Kind), zap.Error(refused))
	case record.FenceValidator:
	default:
		return "", "", unknownClass(want)
	}
	restore, err := n.validatorOf(ctx, tok)
	// A copied fence without an owner would block the application's writes for good.
	if err == nil {
		err = n.endCopy(ctx, tok)
	}
	return record.FenceValidator, restore, err
}

// refuseFixed refuses a fixed-name kind if its collection cannot be distinguished from another one
// under its name. Late commands would write into that other one.
func (n *Fences) refuseFixed(ctx context.Context, tok record.Token) error {
	lacks, err := n.selfTest(ctx)
	if err != nil {
		return err
	}
	reason := "its token has no collection UUID"
	if lacks != nil {
		reason = "the server does not check collection UUIDs: " + lacks.Reason
	} else if tok.ID != "" {
		return nil
	}
	return &record.UnsupportedError{What: "fixed-name kind " + n.Name + "." + tok.Name, Reason: reason}
}

func (n *Fences) chooseManaged(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	if want != "" && want != record.FenceUUID && want != record.FenceValidator {
		return "", "", &record.UnsupportedError{
			What:   fmt.Sprintf("fence class %s for %s.%s", want, n.Name, tok.Name),
			Reason: "managed kinds are fenced by uuid, or by validator where the server lacks collectionUUID",
		}
	}
	lacks, err := n.selfTest(ctx)
	if err != nil {
		return "", "", err
	}
	switch {
	case lacks == nil && tok.ID != "":
		if want == record.FenceValidator {
			// Clients choose by the token. With a UUID in it they send real deletes, which no
			// validator stops.
			return "", "", &record.UnsupportedError{
				What:   fmt.Sprintf("fence class validator for %s.%s", n.Name, tok.Name),
				Reason: "the server checks collection UUIDs: use class uuid, which refuses deletes too",
			}
		}
		return record.FenceUUID, "", nil
	case want == record.FenceUUID && lacks != nil:
		return "", "", lacks
	case want == record.FenceUUID:
		return "", "", &record.UnsupportedError{
			What:   fmt.Sprintf("fence class uuid for %s.%s", n.Name, tok.Name),
			Reason: "its token has no collection UUID",
		}
	}
	restore, err := n.validatorOf(ctx, tok)
	return record.FenceValidator, restore, err
}

// Fence executes and confirms the announced operation. It retries until ctx ends. It resolves an
// attempt with an unknown outcome (no answer, a failover, an expired write concern) by looking for
// the collection's UUID, and by majority writes after that.
//
// A removed fence cannot be set again. A new attempt needs another To.
func (n *Fences) Fence(ctx context.Context, f record.Fence) error {
	if err := n.fence(ctx, f); err != nil {
		return fmt.Errorf("fence %s.%s to %s: %w", n.Name, f.Token.Name, f.To, err)
	}
	return nil
}

func (n *Fences) fence(ctx context.Context, f record.Fence) error {
	if f.Token.Name == "" || f.To == "" {
		return errors.New("needs a collection name and a name to fence it to")
	}
	switch f.Class {
	case record.FenceUUID, "":
		return n.renameClosed(ctx, f)
	case record.FenceView:
		if _, _, hidden := record.KindOfPhysical(f.Token.Name); hidden {
			// No application knows a hidden name, so no view is needed.
			return n.renameClosed(ctx, f)
		}
		if err := n.closeEnded(ctx, f); err != nil {
			return err
		}
		return n.fenceView(ctx, f)
	case record.FenceValidator:
		if err := n.closeEnded(ctx, f); err != nil {
			return err
		}
		if err := n.fenceValidator(ctx, f); err != nil {
			return err
		}
		return n.endFormer(ctx, f)
	case record.FenceWriteBlock:
		if err := n.closeEnded(ctx, f); err != nil {
			return err
		}
		if err := n.fenceWriteBlock(ctx, f); err != nil {
			return err
		}
		return n.endFormer(ctx, f)
	default:
		return unknownClass(f.Class)
	}
}

// closeEnded closes the fence that f ends. The caller's next command gives the collection back, and a
// late command could set the former fence again.
func (n *Fences) closeEnded(ctx context.Context, f record.Fence) error {
	if f.Ends == "" {
		return nil
	}
	return n.UntilDone(ctx, "", func(ctx context.Context) error { return n.closeFence(ctx, f.Token.Name, f.Ends) })
}

// renameClosed is fenceRename, which looks while the fence that f ends is being closed. Closing it
// takes two steps, a note and the drop of its gate.
func (n *Fences) renameClosed(ctx context.Context, f record.Fence) error {
	var closing errgroup.Group
	closing.Go(func() error { return n.closeEnded(ctx, f) })
	err := n.fenceRename(ctx, f, closing.Wait)
	return cmp.Or(closing.Wait(), err) // in any case, so that it does not outlive the call
}

// Unfence gives a fixed-name kind back to its application. It retries until ctx ends, and may be
// repeated. It does nothing for FenceUUID.
func (n *Fences) Unfence(ctx context.Context, f record.Fence) error {
	var err error
	switch f.Class {
	// A renamed managed kind stays fenced, because its old name is never used again.
	case record.FenceUUID, "":
		return nil
	case record.FenceView:
		err = n.unfenceView(ctx, f)
	case record.FenceValidator:
		err = n.unfenceValidator(ctx, f)
	case record.FenceWriteBlock:
		err = n.unfenceWriteBlock(ctx, f)
	default:
		err = unknownClass(f.Class)
	}
	if err != nil {
		return fmt.Errorf("remove fence of %s.%s: %w", n.Name, f.Token.Name, err)
	}
	return nil
}

func unknownClass(class record.FenceClass) error {
	return &record.UnsupportedError{What: fmt.Sprintf("fence class %q", class), Reason: "MongoDB has uuid, view, validator and writeBlock"}
}
