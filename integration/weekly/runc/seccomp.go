// Package seccomp loads seccomp filters for runc without libseccomp, whose headers a machine with Go and Rust alone does not have.
// The build puts this file in the place of libcontainer/seccomp/seccomp_unsupported.go in a copy of runc's module. That file refuses every profile.
package seccomp

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Enabled is what `runc features` prints.
const Enabled = true

// Offsets in struct seccomp_data (linux/seccomp.h), for a little-endian machine.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// InitSeccomp loads the filter for this thread, which then executes the container's program. It returns no descriptor, because it
// refuses filters that notify an agent.
func InitSeccomp(config *configs.Seccomp) (int, error) {
	if config == nil {
		return -1, errors.New("load a seccomp filter: there is no configuration")
	}
	program, err := compile(config)
	if err != nil {
		return -1, fmt.Errorf("compile a seccomp filter: %w", err)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return -1, fmt.Errorf("assemble a seccomp filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, one := range raw {
		filter[i] = unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K}
	}
	loaded := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&loaded)))
	runtime.KeepAlive(filter)
	if failed != 0 {
		return -1, fmt.Errorf("load a seccomp filter: %w", failed)
	}
	return -1, nil
}

// FlagSupported refuses every flag: none is needed for the profile of a container runtime.
func FlagSupported(flag specs.LinuxSeccompFlag) error {
	return fmt.Errorf("the seccomp flag %s is not supported here", flag)
}

// Version is that of libseccomp, which is not there.
func Version() (uint, uint, uint) { return 0, 0, 0 }

// compile writes one test for each rule, in order. A call of another architecture gets the default action.
func compile(config *configs.Seccomp) ([]bpf.Instruction, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	byDefault, err := action(config.DefaultAction, config.DefaultErrnoRet)
	if err != nil {
		return nil, err
	}
	last := 0
	for _, number := range machine.SyscallNames {
		last = max(last, number)
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(machine.ID), SkipTrue: 1},
		bpf.RetConstant{Val: byDefault},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		// A C library tries newer calls first, and takes the older ones only after ENOSYS.
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(last), SkipFalse: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}
	for _, call := range config.Syscalls {
		number, known := machine.SyscallNames[call.Name]
		if !known {
			continue
		}
		result, err := action(call.Action, call.ErrnoRet)
		if err != nil {
			return nil, err
		}
		rule, err := arguments(call.Args)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", call.Name, err)
		}
		rule = append(rule, bpf.RetConstant{Val: result}, bpf.LoadAbsolute{Off: offsetNumber, Size: 4})
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(number), SkipFalse: uint8(len(rule))})
		program = append(program, rule...)
	}
	return append(program, bpf.RetConstant{Val: byDefault}), nil
}

// arguments jumps behind the instruction that follows it unless every argument is as it should be.
func arguments(all []*configs.Arg) ([]bpf.Instruction, error) {
	var tests []bpf.Instruction
	for i := len(all) - 1; i >= 0; i-- {
		test, err := argument(all[i], uint8(len(tests)+1))
		if err != nil {
			return nil, err
		}
		tests = append(test, tests...)
	}
	return tests, nil
}

// argument skips this number of further instructions unless the argument is as it should be. Arguments have 64 bits, and BPF's numbers 32.
func argument(one *configs.Arg, out uint8) ([]bpf.Instruction, error) {
	offset := offsetArgs + 8*uint32(one.Index)
	low, high := bpf.LoadAbsolute{Off: offset, Size: 4}, bpf.LoadAbsolute{Off: offset + 4, Size: 4}
	lowValue, highValue := uint32(one.Value), uint32(one.Value>>32)
	ordered := func(strict, last bpf.JumpTest) []bpf.Instruction {
		return []bpf.Instruction{
			high,
			bpf.JumpIf{Cond: strict, Val: highValue, SkipTrue: 3},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: highValue, SkipFalse: out + 2},
			low,
			bpf.JumpIf{Cond: last, Val: lowValue, SkipFalse: out},
		}
	}
	switch one.Op {
	case configs.EqualTo, configs.MaskEqualTo:
		mask, value := ^uint64(0), one.Value
		if one.Op == configs.MaskEqualTo {
			mask, value = one.Value, one.ValueTwo
		}
		return []bpf.Instruction{
			high,
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(mask >> 32)},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(value >> 32), SkipFalse: out + 3},
			low,
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(mask)},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(value), SkipFalse: out},
		}, nil
	case configs.NotEqualTo:
		return []bpf.Instruction{
			high,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: highValue, SkipTrue: 2},
			low,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: lowValue, SkipTrue: out},
		}, nil
	case configs.GreaterThan:
		return ordered(bpf.JumpGreaterThan, bpf.JumpGreaterThan), nil
	case configs.GreaterThanOrEqualTo:
		return ordered(bpf.JumpGreaterThan, bpf.JumpGreaterOrEqual), nil
	case configs.LessThan:
		return ordered(bpf.JumpLessThan, bpf.JumpLessThan), nil
	case configs.LessThanOrEqualTo:
		return ordered(bpf.JumpLessThan, bpf.JumpLessOrEqual), nil
	default:
		return nil, fmt.Errorf("the comparison %d is not known", one.Op)
	}
}

func action(one configs.Action, errno *uint) (uint32, error) {
	code := uint32(unix.EPERM)
	if errno != nil {
		code = uint32(*errno)
	}
	switch one {
	case configs.Allow:
		return unix.SECCOMP_RET_ALLOW, nil
	case configs.Errno:
		return unix.SECCOMP_RET_ERRNO | code, nil
	case configs.Kill, configs.KillThread:
		return unix.SECCOMP_RET_KILL_THREAD, nil
	case configs.KillProcess:
		return unix.SECCOMP_RET_KILL_PROCESS, nil
	case configs.Trap:
		return unix.SECCOMP_RET_TRAP, nil
	case configs.Log:
		return unix.SECCOMP_RET_LOG, nil
	default:
		return 0, fmt.Errorf("the action %d is not supported here", one)
	}
}
