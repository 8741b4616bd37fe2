"""A sum over all ranks by MPI_Allreduce, through ctypes: no compiler is needed.

Its argument is the path of mpirun: that of OpenMPI 5 does not say where its library is. The oldest
Python that runs it is 3.5, of Ubuntu 16.04.
"""

import ctypes
import socket
import sys
from pathlib import Path

NAME = "libmpi.so.40"
bundled = Path(sys.argv[1]).parent.parent / "lib" / NAME
mpi = ctypes.CDLL(str(bundled) if bundled.exists() else NAME, mode=ctypes.RTLD_GLOBAL)


def handle(name):
    """The address of one of OpenMPI's predefined objects, which is what its macros stand for."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


world = handle("ompi_mpi_comm_world")
mpi.MPI_Init(None, None)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
addend = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(
    ctypes.byref(addend),
    ctypes.byref(total),
    1,
    handle("ompi_mpi_int"),
    handle("ompi_mpi_op_sum"),
    world,
)
values = (rank.value, size.value, socket.gethostname(), total.value)
print("rank %d of %d on %s: sum %d" % values)  # noqa: UP031  Python 3.5 has no f-strings
mpi.MPI_Finalize()
