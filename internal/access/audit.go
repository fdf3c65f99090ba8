package access

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/refusal"
)

// Audit records each changing call, each refused call, and the caller, in a log of its own. It
// writes before the caller receives the answer. A nil Audit records nothing.
type Audit struct {
	log *zap.Logger
}

// AuditLog is the name of the audit's logger. A process must write these lines at every log level.
const AuditLog = "audit"

// NewAudit returns an Audit that writes to log under the name AuditLog.
func NewAudit(log *zap.Logger) *Audit { return &Audit{log: log.Named(AuditLog)} }

// asking is the common part of changing requests.
type asking interface {
	GetName() string
	GetRequestedBy() string
	GetDryRun() bool
}

type renewalKey struct{}

// Renewed marks a call as a mere renewal. Each application renews every few seconds, so the audit
// omits these calls. It still records failed ones.
func Renewed(ctx context.Context) {
	if r, ok := ctx.Value(renewalKey{}).(*bool); ok {
		*r = true
	}
}

// panicked records a call with a panicked handler. Its effect is unknown.
func (a *Audit) panicked(r *http.Request, c Caller) {
	if a == nil {
		return
	}
	a.log.Error("panicked", append(a.fields(c, clip(callName(r.URL.Path))), zap.String("answer", "none"))...)
}

// answered records a call with its answer.
func (a *Audit) answered(c Caller, procedure string, header http.Header, req any, renewed bool, err error) {
	if a == nil || renewed && err == nil {
		return
	}
	// Text from a request is clipped: a caller must not flood the audit.
	fields := append(a.fields(c, callName(procedure)), forwarded(header)...)
	if r, ok := req.(interface{ GetName() string }); ok && r.GetName() != "" {
		fields = append(fields, zap.String("deployment", clip(r.GetName())))
	}
	if r, ok := req.(asking); ok {
		fields = append(fields, zap.String("by", clip(r.GetRequestedBy())), zap.Bool("dry_run", r.GetDryRun()))
	}
	if r, ok := req.(interface{ GetApplication() string }); ok {
		fields = append(fields, zap.String("application", clip(r.GetApplication())))
	}
	if r, ok := req.(interface{ GetClientId() string }); ok && r.GetClientId() != "" {
		fields = append(fields, zap.String("client", clip(r.GetClientId())))
	}
	a.log.Info("call", append(fields, answer(err)...)...)
}

// refused records a call that the Guard refused.
func (a *Audit) refused(r *http.Request, c Caller, err error) {
	if a == nil {
		return
	}
	a.log.Warn("refused", append(append(a.fields(c, clip(callName(r.URL.Path))), forwarded(r.Header)...), answer(err)...)...)
}

// ended records a running call that the Guard ended, because its caller's proof no longer counts.
func (a *Audit) ended(c Caller, call string, err error) {
	if a == nil {
		return
	}
	a.log.Warn("ended", append(a.fields(c, call), answer(connect.NewError(connect.CodeUnauthenticated, err))...)...)
}

func (a *Audit) fields(c Caller, call string) []zap.Field {
	roles := make([]string, len(c.Roles))
	for i, r := range c.Roles {
		roles[i] = string(r)
	}
	return []zap.Field{zap.String("identity", c.Name), zap.String("proof", c.Proof), zap.Strings("roles", roles),
		zap.String("from", c.Address), zap.String("call", call)}
}

// ForwardedHeader is set in calls that another controller has forwarded. Its value names that controller
// and its caller. Any caller can send it, so it gives no right, and the audit records it as a claim.
const ForwardedHeader = "Dbcontroller-Forwarded"

// forwarded returns the field of a forwarded call.
func forwarded(header http.Header) []zap.Field {
	if v := header.Get(ForwardedHeader); v != "" {
		return []zap.Field{zap.String("forwarded_by", clipTo(v, 300))}
	}
	return nil
}

// maxMessage is the maximum length of an error in the audit. It may quote the request.
const maxMessage = 1000

// answer describes the answer that the caller receives.
func answer(err error) []zap.Field {
	if err == nil {
		return []zap.Field{zap.String("answer", "ok")}
	}
	fields := []zap.Field{zap.String("answer", connect.CodeOf(err).String()), zap.String("message", clipTo(err.Error(), maxMessage))}
	if reason, _ := refusal.Of(err); reason != "" {
		fields = append(fields, zap.String("reason", string(reason)))
	}
	return fields
}
