package syncer

import (
	"context"

	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// awaitReplaced waits until the collection that an application has put in the place of its own is
// followed, which ends this engine: another one copies everything anew. Until then no shard is
// ready, and the target stays as it is. If the direction is over nobody needs the stream.
func (e *Engine) awaitReplaced(ctx context.Context, what *record.ReplacedError) error {
	e.mu.Lock()
	over := e.over()
	e.mu.Unlock()
	if over {
		return what
	}
	defer e.setReplaced("")
	e.setReplaced(what.Error())
	if err := e.withdrawAll(ctx); err != nil {
		e.Log.Debug("reports are taken back later", zap.Error(err)) // housekeeping does
	}
	for {
		err := e.Replaced(ctx, e.bound, what)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			e.setReplaced(err.Error())
			e.failed(following, err)
		}
		if refreshErr := e.refresh(ctx); refreshErr != nil {
			e.Log.Debug("refresh", zap.Error(refreshErr))
		}
		e.mu.Lock()
		passed := e.foreign(e.record)
		if e.over() {
			passed = errOver
		}
		e.mu.Unlock()
		if passed != nil {
			return passed
		}
		if err := wait(ctx, e.cfg.Every); err != nil {
			return err
		}
		if err == nil {
			return nil // the collection is followed, and the next record ends this engine
		}
	}
}

func (e *Engine) setReplaced(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replaced = why
	e.announce()
}
