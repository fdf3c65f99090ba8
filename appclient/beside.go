package appclient

import "context"

// beside waits for news at a second controller, while follow waits at the controller with index at.
// That one may stand still: follow would notice this only after longestPoll and callTimeout, and a
// switch does not wait that long for an acknowledgement. The caller must call stop.
func (a *App) beside(ctx context.Context, at int) (stop func()) {
	if len(a.controllers) == 1 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.watch(ctx, at)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// watch waits for news, and acknowledges holds, at any controller except the one with index at. It
// changes the controller after each error. Only follow registers, so its calls have no client id: a
// controller must not end the registration when watch breaks off.
func (a *App) watch(ctx context.Context, at int) {
	wait := newBackOff()
	var acked holdID
	var lost error // last logged error
	others := len(a.controllers) - 1
	for i := 0; ctx.Err() == nil; {
		c := a.controllers[(at+1+i%others)%len(a.controllers)]
		err := a.guarded("the second watch of the controllers", func() error { return a.await(ctx, c, "", &acked) })
		if err == nil {
			wait.Reset()
			lost = nil
			continue
		}
		if ctx.Err() != nil {
			return
		}
		lost, acked = a.warnOnce(c, err, lost), holdID{}
		i++
		_ = pause(ctx, wait) // the loop checks ctx
	}
}
