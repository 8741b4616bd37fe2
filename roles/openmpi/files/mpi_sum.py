"""A sum over all ranks by MPI_Allreduce, through ctypes: no compiler is needed."""

import ctypes
import socket

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def handle(name):
    """The address of one of OpenMPI's predefined objects, which is what its macros stand for."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


world = handle("ompi_mpi_comm_world")
mpi.MPI_Init(None, None)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
mine = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(
    ctypes.byref(mine),
    ctypes.byref(total),
    1,
    handle("ompi_mpi_int"),
    handle("ompi_mpi_op_sum"),
    world,
)
print(f"rank {rank.value} of {size.value} on {socket.gethostname()}: sum {total.value}")
mpi.MPI_Finalize()
